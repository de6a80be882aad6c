"""The record of changes of waiting messages, by whom and when: JSON lines in files of bounded size.

Invariants:

- a change is written before its answer, even one that failed halfway or met the daemon's end; a dry run is
  not;
- each line begins on its own line, even after a torn one;
- all files together have at most the set size, the oldest lines go first; only the owner can read them;
- a failed write is counted and logged; the change and its answer stay;
- a line has no secret: a role, not the token that proves it.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.index import Clock
from tidegate.plugin.api.changes import OUTCOMES
from tidegate.plugin.shared.seldom import Seldom
from tidegate.plugin.shared.topics import full_topic
from tidegate.plugin.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import structlog

NAMES = ("audit.jsonl", "audit.1.jsonl", "audit.2.jsonl", "audit.3.jsonl")
"""The files, the newest lines in the first."""
IDS_MAX = 10  # of one line
UNFINISHED = "unfinished"
_LINE_BYTES_MAX = 65_536
_TEXT_MAX = 1_000
_NAME_MAX = 8_192


class AuditLog:
    """The log in `folder`. bytes_max: of all files; 0: none is written. executor: writes."""

    def __init__(
        self,
        folder: Path,
        bytes_max: int,
        clock: Clock,
        *,
        executor: Executor | None,
        metrics: Metrics,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._paths = [folder / name for name in NAMES]
        self._file_bytes_max = bytes_max // len(NAMES)
        self._clock = clock
        self._executor = executor
        self._metrics = metrics
        self._log = log
        self._seldom = Seldom(clock.monotonic_ns)
        self._one_at_a_time = threading.Lock()

    async def write(
        self, request: Mapping[str, object], ids: list[str], answer: Mapping[str, Any], peer: str | None
    ) -> None:
        """Write one change. answer: counts, or ``outcome`` and ``error``; peer: the process that asked."""
        for name in OUTCOMES:
            count = answer.get(name, 0)
            if isinstance(count, int) and not isinstance(count, bool):
                self._metrics.messages_changed.inc(name, count)
        if not self._file_bytes_max:
            return
        line = self._line(request, ids, answer, peer)
        if self._executor is None:
            self._failed(self._append(line))
            return
        try:
            job = asyncio.get_running_loop().run_in_executor(self._executor, self._append, line)
        except RuntimeError:  # its threads have ended
            self._failed(self._append(line))
            return
        try:
            self._failed(await asyncio.shield(job))
        except asyncio.CancelledError:
            job.add_done_callback(lambda job: self._failed(job.result()))
            raise

    def write_now(
        self, request: Mapping[str, object], ids: list[str], answer: Mapping[str, Any], peer: str | None
    ) -> None:
        """As ``write`` without counts, before it returns: for a task that ends."""
        if self._file_bytes_max:
            self._failed(self._append(self._line(request, ids, answer, peer)))

    def _failed(self, error: OSError | None) -> None:
        if error is None:
            return
        self._metrics.audit_failures.inc()
        more = self._seldom.more("write")
        if more is not None:
            self._log.error("a change could not be written to the audit log", error=str(error), **more)

    def _line(
        self, request: Mapping[str, object], ids: list[str], answer: Mapping[str, Any], peer: str | None
    ) -> bytes:
        time = datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC)
        topic = request.get("topic")
        known: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds"),
            "command": request.get("what"),
            "peer": peer,
            "role": _cut(request.get("role"), _TEXT_MAX),
            "topic": _cut(topic and full_topic(str(topic)), _NAME_MAX),
            "subscription": _cut(request.get("subscription"), _NAME_MAX),
        }
        known |= {name: answer[name] for name in (*OUTCOMES, "outcome") if name in answer}
        known["error"] = _cut(answer.get("error"), _TEXT_MAX)
        known["why"] = _cut(_why(answer), _TEXT_MAX)
        more = {name: request[name] for name in ("at_ms", "by_ms", "kind", "amount") if name in request}
        line = json.dumps({name: value for name, value in (known | more).items() if value is not None})
        with_ids = json.dumps(json.loads(line) | {"ids": ids[:IDS_MAX]}) if ids else line
        return (with_ids if len(with_ids) < _LINE_BYTES_MAX else line).encode() + b"\n"

    def _append(self, line: bytes) -> OSError | None:
        with self._one_at_a_time:
            try:
                if not self._appended(line):
                    for older, newer in zip(self._paths[:0:-1], self._paths[-2::-1], strict=True):
                        if newer.exists():
                            newer.replace(older)
                    self._appended(line)
            except OSError as error:
                return error
        return None

    def _appended(self, line: bytes) -> bool:
        """False if the first file has no room."""
        first = self._paths[0]
        first.parent.mkdir(0o700, parents=True, exist_ok=True)
        file = os.open(first, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line
            if size and size + len(line) > self._file_bytes_max:
                return False
            while line:
                line = line[os.write(file, line) :]
            return True
        finally:
            os.close(file)


def _why(answer: Mapping[str, Any]) -> object:
    """The reason for undecided messages, of the whole or of the first part with one."""
    parts = (one.get("why") for one in answer.get("subscriptions", ()))
    return answer.get("why") or next((why for why in parts if why), None)


def _cut(value: object, length_max: int) -> str | None:
    return value[:length_max] if isinstance(value, str) else None
