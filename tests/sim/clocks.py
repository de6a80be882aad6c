"""A machine's clocks: a wall clock that drifts and that an administrator steps, and a monotonic one."""

from __future__ import annotations

from tests.sim.kernel import NS_PER_MS, Kernel

_PPM = 1_000_000
_FAR_MS = 60_000  # no timer is set further ahead


class MachineClock:
    """Implements `tidegate.index.Clock`. Wall and monotonic clock drift alike; only the wall is stepped."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.steps = 0
        self._ppm = 0
        self._base_true_ns = kernel.now_ns
        self._base_ns = 7_000_000_000  # of the monotonic clock
        self._wall_ns = kernel.now_ns - self._base_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back."""
        return self._base_ns + (self._kernel.now_ns - self._base_true_ns) * (_PPM + self._ppm) // _PPM

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch."""
        return (self.monotonic_ns() + self._wall_ns) // NS_PER_MS

    def true_delay_ns(self, delay_ns: int) -> int:
        """A timer's true duration."""
        return delay_ns * _PPM // (_PPM + self._ppm)

    def true_ns_of(self, at_ms: int) -> int:
        """When the wall clock will show that, without a step; now if it does already."""
        ahead_ns = at_ms * NS_PER_MS - self.monotonic_ns() - self._wall_ns
        return self._kernel.now_ns + (0 if ahead_ns <= 0 else -(-ahead_ns * _PPM // (_PPM + self._ppm)))

    def step(self, by_ms: int) -> None:
        """Set the wall clock, either way."""
        self.steps += 1
        self._wall_ns += by_ms * NS_PER_MS
        self._disturb(by_ms)

    def drift(self, ppm: int) -> None:
        """Run faster by so many millionths from now on."""
        self._base_ns = self.monotonic_ns()
        self._base_true_ns = self._kernel.now_ns
        self._ppm = ppm
        self._disturb(_FAR_MS * abs(ppm) // _PPM)

    def correct(self) -> None:
        """Show the true time and run with it."""
        self._disturb(self.error_ms + _FAR_MS * abs(self._ppm) // _PPM)
        self.drift(0)
        self.steps += 1
        self._wall_ns = self._kernel.now_ns - self.monotonic_ns()

    def _disturb(self, by_ms: int) -> None:
        """A timer set before may come late by as much."""
        self._kernel.disturb(abs(by_ms) * NS_PER_MS)

    @property
    def was_stepped(self) -> bool:
        """True if it was ever wrong."""
        return self.steps > 0 or self._ppm != 0

    @property
    def error_ms(self) -> int:
        """The wall clock's lead over the truth."""
        return (self.monotonic_ns() + self._wall_ns - self._kernel.now_ns) // NS_PER_MS
