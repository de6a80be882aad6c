"""The user's hook: a command of theirs that kills, stops, pauses and starts processes not ours.

Invariants: a hook's success counts only once seen from outside; a hook asked to take a part away is also
asked to bring it back, even if the part was never seen away. A running hook may finish (for five minutes),
because an interrupted one may have done half of its work.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidegate.plugin.drill.fault import FaultError, State
from tidegate.plugin.shared.stop import InterruptedRunError

_HOOK_TIMEOUT_S = 300.0
_AWAY_TIMEOUT_S = 30.0
# A busy machine takes its time to start a broker.
_BACK_TIMEOUT_S = 180.0
_POLL_S = 0.1
_WORDS_MAX = 200


class Watched(Protocol):
    """A cluster seen from outside."""

    def trace(self, name: str) -> object:
        """Evidence for a later `away`."""
        ...

    def away(self, name: str, before: object) -> bool:
        """True if the part is gone, or was since ``before``, a `trace`."""
        ...

    def there(self, name: str) -> bool:
        """True if the part is usable."""
        ...


class HookPart:
    """A process that the user's hook acts on: ``HOOK kill broker``."""

    def __init__(
        self, name: str, seen: Watched, command: str, log_path: Path, pause: Callable[[float], None]
    ) -> None:
        self.name = name
        self._seen = seen
        self._command = shlex.split(command)
        self._log_path = log_path
        self._pause = pause
        self._state = State.RUNNING

    def kill(self) -> None:
        """Request it, and see it."""
        self._take_away("kill", State.GONE)

    def stop(self) -> None:
        """Request it, and see it."""
        self._take_away("stop", State.GONE)

    def pause(self) -> None:
        """Request it, and see it."""
        self._take_away("pause", State.PAUSED)

    def start(self) -> None:
        """Request it, and see it."""
        self._bring_back("start")

    def resume(self) -> None:
        """Request it, and see it."""
        self._bring_back("resume")

    def state(self) -> State:
        """The state after the last successful call."""
        return self._state

    def _take_away(self, what: str, state: State) -> None:
        before = self._seen.trace(self.name)
        try:
            self._call(what)
        except InterruptedRunError:
            self._state = state
            raise
        # Before it is seen: even after a failure, it must come back.
        self._state = state
        self._until(
            lambda: self._seen.away(self.name, before),
            _AWAY_TIMEOUT_S,
            f"{what} the {self.name}, which was never seen away",
        )

    def _bring_back(self, what: str) -> None:
        interrupted: InterruptedRunError | None = None
        try:
            self._call(what)
        except InterruptedRunError as error:
            interrupted = error
        self._state = State.RUNNING
        if interrupted is not None:
            raise interrupted
        self._until(
            lambda: self._seen.there(self.name),
            _BACK_TIMEOUT_S,
            f"{what} the {self.name}, which was not seen again",
        )

    def _call(self, what: str) -> None:
        """Run the hook to its end; interrupts wait until then."""
        interrupted: InterruptedRunError | None = None
        deadline_s = time.monotonic() + _HOOK_TIMEOUT_S
        try:
            with self._log_path.open("ab") as log:
                log.write(f"{what} {self.name}\n".encode())
                log.flush()
                begin = log.tell()
                # In a session of its own: Ctrl-C is for us, and must not reach a running hook.
                process = subprocess.Popen(  # noqa: S603
                    [*self._command, what, self.name],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            while process.poll() is None:
                if time.monotonic() > deadline_s:
                    process.kill()
                    process.wait()
                    raise FaultError(
                        f"the hook was to {what} the {self.name} and did not end in {_HOOK_TIMEOUT_S:.0f} s"
                    )
                if interrupted is None:
                    try:
                        self._pause(_POLL_S)
                    except InterruptedRunError as error:
                        interrupted = error
                else:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
        except OSError as error:
            raise FaultError(f"the hook could not be run to {what} the {self.name}: {error}") from error
        if process.returncode:
            said = " ".join(self._said(begin).split())[-_WORDS_MAX:]
            told = f"the hook was to {what} the {self.name} and ended with {process.returncode}"
            raise FaultError(f"{told}: {said}")
        if interrupted is not None:
            raise interrupted

    def _said(self, begin: int) -> str:
        with self._log_path.open("rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    def _until(self, seen: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not seen():
            if time.monotonic() > deadline_s:
                raise FaultError(f"the hook was to {what}: the fault was not done")
            self._pause(_POLL_S)
