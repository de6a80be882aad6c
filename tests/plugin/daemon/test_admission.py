"""The admission of entries: bounded, smooth, and as fast as what is drained. Time is only a number here."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.plugin.daemon.admission import PAUSE_MAX_S, Admission

MIB = 1 << 20
SPILL, HARD = 32 * MIB, 64 * MIB
READ = 128 * 1024
MS = 1_000_000


class Flow:
    """A reader that always has something to read, and a drain; one step is a millisecond."""

    def __init__(self, admission: Admission, read_bytes: int = READ) -> None:
        self.admission = admission
        self.read_bytes = read_bytes
        self.now_ns = 1_000 * MS
        self.level = 0
        self.taken = 0
        self.level_max = 0
        self.longest_wait_ms = 0
        self._waited_ms = 0
        self._ready_ns = 0

    def step(self, drained: int, reads_max: int = 40) -> None:
        self.now_ns += MS
        self.level = max(0, self.level - drained)
        if self.now_ns // MS % 100 == 0:
            self.admission.tell(self.level, self.now_ns)
        reads = 0
        while self._ready_ns <= self.now_ns and reads < reads_max:
            if reads or not self._ready_ns:
                self.admission.count_read(self.read_bytes)
                self.level += self.read_bytes
                self.taken += self.read_bytes
            reads += 1
            pause_s = self.admission.pause_s(self.now_ns)
            self._ready_ns = self.now_ns + int(pause_s * 1_000 * MS) if pause_s else 0
        self._waited_ms = 0 if reads > 1 or not self._ready_ns else self._waited_ms + 1
        self.longest_wait_ms = max(self.longest_wait_ms, self._waited_ms)
        self.level_max = max(self.level_max, self.level)


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 600_000)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_the_level_stays_below_the_hard_bound_however_it_is_drained(drains: list[tuple[int, int]]) -> None:
    flow = Flow(Admission(SPILL, HARD))
    for steps, drained in drains:
        for _ in range(steps):
            flow.step(drained)
    assert flow.level_max <= HARD + READ


def test_nothing_is_paced_below_the_soft_bound() -> None:
    admission = Admission(SPILL, HARD)
    admission.tell(SPILL, 0)
    for at in range(100):
        admission.count_read(READ // 100)
        assert admission.pause_s(at) == 0.0


@pytest.mark.parametrize("drain_mib_per_s", [5, 30, 100, 300])
def test_as_much_comes_in_as_goes_out_and_nobody_waits_long(drain_mib_per_s: int) -> None:
    """Whatever the machine can do: the steady state is that rate, without a stop."""
    flow = Flow(Admission(SPILL, HARD))
    drained = drain_mib_per_s * MIB // 1_000
    for _ in range(20_000):
        flow.step(drained)
    taken, flow.longest_wait_ms = flow.taken, 0
    for _ in range(10_000):
        flow.step(drained)
    assert flow.taken - taken == pytest.approx(10 * drain_mib_per_s * MIB, rel=0.1)
    assert flow.longest_wait_ms <= 2_000 * READ / (drain_mib_per_s * MIB) + 10


def test_a_drain_in_bursts_is_smoothed() -> None:
    """Spills that take half a second, and as long a break: reading goes on in the breaks."""
    flow = Flow(Admission(SPILL, HARD))
    for second in range(60):
        if second == 20:
            flow.longest_wait_ms = 0
        for at in range(1_000):
            flow.step(60_000 if at < 500 else 0)
    assert flow.longest_wait_ms <= 100


def test_at_the_hard_bound_nothing_is_let_through_until_there_is_room() -> None:
    admission = Admission(SPILL, HARD)
    admission.tell(HARD, 0)
    assert admission.stopped
    for at_ms in range(0, 10_000, 20):
        assert admission.pause_s(at_ms * MS) == PAUSE_MAX_S
    admission.tell(SPILL, 10_000 * MS)
    assert not admission.stopped
    assert admission.pause_s(10_001 * MS) == 0.0


def test_a_long_stop_is_not_followed_by_a_crawl() -> None:
    """The disk was full for a minute: then the level falls, and with it all waiting."""
    flow = Flow(Admission(SPILL, HARD))
    for _ in range(60_000):
        flow.step(0)
    taken = flow.taken
    for _ in range(3_000):
        flow.step(100 * MIB // 1_000)
    assert flow.taken - taken > 150 * MIB


@pytest.mark.parametrize(("spill", "hard"), [(5, 5), (6, 5), (-1, 5)])
def test_bounds_that_make_no_sense_are_refused(spill: int, hard: int) -> None:
    with pytest.raises(ValueError, match="bound"):
        Admission(spill, hard)
