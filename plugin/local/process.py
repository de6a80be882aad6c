"""A server as a process of ours: started, awaited, killed or stopped, and restarted.

The demo, the tests, the benches and the drills start their brokers and daemons through this. Invariants:

- every process has its own session (a terminal's Ctrl-C reaches the parent alone), and the guard, if there is
  one, knows it from start to end;
- signals go only to the process started here, by its pid;
- a wait ends with the process, calls ``pause`` often, and names the missing part when its time is up.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tidegate.plugin.errors import UserError
from tidegate.plugin.local.guard import Guard

LOOPBACK = "127.0.0.1"
Pause = Callable[[float], None]
"""Waits for so many seconds; may raise to end the wait."""
# A failed start shows at once, by the process's end; a busy machine needs minutes.
START_TIMEOUT_S = 280.0
_POLL_S = 0.02
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORT_MIN, _PORT_END = 10_000, 65_536
_PORTS_ENOUGH = 1_000
_KILLED_TIMEOUT_S = 60.0


class LocalProcessError(UserError):
    """A process that could not be started or did not become ready; the message says where to look."""


class LocalProcess(ABC):
    """One server, through any number of starts. Its output is appended to a log in ``work_dir``.

    Errors are ``LocalProcessError``. ``guard`` kills it if this process dies; ``pause`` waits.
    """

    name: ClassVar[str]

    def __init__(self, work_dir: Path, guard: Guard | None, pause: Pause) -> None:
        self.work_dir = work_dir
        self.log_path = work_dir / f"{self.name}.log"
        self._guard = guard
        self._pause = pause
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        """Prepare its directory; returns its command and its environment."""

    @abstractmethod
    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        """A question to repeat while the process starts; ``asking`` closes the question's resources.

        The answer is the missing part in words, or None once ready.
        """

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait until it is ready."""
        self.spawn()
        self.wait_ready(timeout_s)

    def spawn(self) -> None:
        """Start it without waiting."""
        if self.running:
            raise LocalProcessError(f"the {self.name} already runs as pid {self.pid}")
        self.work_dir.mkdir(parents=True, exist_ok=True)
        command, environment = self._prepare()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env=environment,
                cwd=self.work_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # It takes no lock that another thread could have had.
                preexec_fn=None if self._guard is None else self._guard.announce,  # noqa: PLW1509
            )

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the process is ready; raise if it ends or the time is up."""
        deadline_s = time.monotonic() + timeout_s
        with contextlib.ExitStack() as asking:
            ask = self._probe(asking)
            while self.running:
                missing = ask()
                if missing is None:
                    return
                if time.monotonic() > deadline_s:
                    raise LocalProcessError(
                        f"the {self.name} was not ready after {timeout_s:.0f} s: {missing}; "
                        f"its log may say why: {self.log_path}"
                    )
                # No event to wait for: another process's state shows only by asking.
                self._pause(_POLL_S)
        raise LocalProcessError(f"the {self.name} ended while starting; its log says why: {self.log_path}")

    def lacks(self) -> str | None:
        """The missing part for its use now, in words; None if it is usable."""
        if not self.running:
            return "it does not run"
        with contextlib.ExitStack() as asking:
            return self._probe(asking)()

    @property
    def running(self) -> bool:
        """True if the process started here is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._started().pid

    def kill(self) -> None:
        """Kill -9, and wait for the end of the process."""
        self.end(signal.SIGKILL, _KILLED_TIMEOUT_S)

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM, then kill -9 after ``timeout_s``; returns the exit code."""
        return self.end(signal.SIGTERM, timeout_s)

    def end(self, how: signal.Signals, timeout_s: float) -> int:
        """Send a signal and wait, then kill -9 after ``timeout_s``; returns the exit code."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_KILLED_TIMEOUT_S)
        self._process = None
        if self._guard is not None:
            self._guard.forget(process.pid)
        return process.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, without waiting."""
        self._started().send_signal(number)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP for the block: the process hangs, its sockets open."""
        self.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        """Start on entry."""
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill on exit: nobody needs the data again."""
        self.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise LocalProcessError(f"the {self.name} is not running: start it first")
        return self._process


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now, all held open together so that they differ.

    None is in the system's range for outgoing connections: while its server is away, even a client that tries
    to reach it could take such a port, and so connect to itself.
    """
    candidates = list(_server_ports())
    secrets.SystemRandom().shuffle(candidates)
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            if not candidates:
                raise LocalProcessError(f"there are no {count} free ports on {LOOPBACK}: stop what has them")
            port, one = candidates.pop(), stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind((LOOPBACK, port))
                found.append(port)
        return found


def _server_ports() -> range:
    """The longer of the two ranges beside the outgoing ports, or all ports if both are nearly empty."""
    try:
        low, high = map(int, _OUTGOING_PORTS.read_text("ascii").split())
    except (OSError, ValueError):
        return range(_PORT_MIN, _PORT_END)
    beside = max(range(_PORT_MIN, low), range(high + 1, _PORT_END), key=len)
    return beside if len(beside) >= _PORTS_ENOUGH else range(_PORT_MIN, _PORT_END)
