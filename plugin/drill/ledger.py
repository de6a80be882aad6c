"""The ledger of one round, on disk: its plan, confirmations and receipts, and the faults done.

Each event goes straight to the operating system as it happens, and so survives a kill -9 of the drill itself;
the verdict uses only the files. Invariants:

- every record is one ``write`` to a file opened for appending: threads do not mix theirs, and the reader
  ignores a record cut off by a crash;
- a round without an ``end`` among its events was not finished;
- times are microseconds since the epoch of this machine's clock; ``NEVER`` stands for an event that did not
  happen.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidegate.plugin.checks import NEVER
from tidegate.plugin.drill.plan import FAR_MS, Kind, Plan
from tidegate.plugin.errors import UserError

SCHEMA = 1
_CONFIRMATION = struct.Struct("<Iq")
_RECEIPT = struct.Struct("<IHHqqqq")
_CONFIRMATIONS = np.dtype([("number", "<u4"), ("confirmed_us", "<i8")])
_RECEIPTS = np.dtype(
    [
        ("number", "<u4"),
        ("consumer", "<u2"),
        ("redeliveries", "<u2"),
        ("ledger_id", "<i8"),
        ("entry_id", "<i8"),
        ("received_us", "<i8"),
        ("acked_us", "<i8"),
    ]
)
_U16_MAX = 65_535


@dataclass(frozen=True)
class Round:
    """The round's identity and rules.

    ``start_us``: the event *start* has it anew, once the messages before it are stored. ``repeats_allowed``:
    the causes (by name) for which messages may come again. ``burst``: all of it must be stored before it is
    due. ``early_ms``: how early messages may come after the first fault.
    """

    drill: str
    tracker: str
    stand: str
    number: int
    seed: int
    run: int
    start_us: int
    repeats_allowed: tuple[str, ...] = ()
    burst: bool = False
    early_ms: int = 0
    schema: int = SCHEMA


class Forgets(StrEnum):
    """The acknowledgements that a fault may make forgotten, whatever the tracker.

    NOTHING: none; consumers stay connected to the same broker. UNDER_WAY: those not yet at the broker,
    because consumers are disconnected. ORDERLY: the same; the broker stores its cursors first, so of the
    others only those beyond a cursor record's room can be missing. UNSTORED: also those not yet stored by the
    broker, because it dies or is replaced.
    """

    NOTHING = "nothing"
    UNDER_WAY = "under_way"
    ORDERLY = "orderly"
    UNSTORED = "unstored"


@dataclass(frozen=True)
class Strike:
    """One fault: its beginning, the evidence, its undoing, and the moment when deliveries are possible again.

    ``rewinds``: the cursor was reset on purpose; ``rewind_us``: begin of the last attempt, which a broker
    accepted. Older ledgers have ``begin_us`` there.
    """

    what: str
    begin_us: int
    done_us: int = NEVER
    undo_us: int = NEVER
    back_us: int = NEVER
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False
    rewind_us: int = NEVER
    evidence: str = ""


@dataclass(frozen=True)
class Record:
    """A ledger read back. ``clock``: (from when, lead of the broker's clock), ascending. ``reads``: (when,
    entries read from storage by each run of a broker until then), ascending.
    """

    round: Round
    plan: Plan
    confirmed_us: npt.NDArray[np.int64]
    receipts: npt.NDArray[np.void]
    strikes: list[Strike] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    far_held: int | None = None
    reads: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    finished: bool = False


class LedgerError(UserError):
    """A ledger that cannot be written or read; the message says which and why."""


class Ledger:
    """The writing side, for one round; any thread may call every method."""

    def __init__(self, directory: Path, of: Round, plan: Plan, now_us: Callable[[], int]) -> None:
        self.directory = directory
        self._now_us = now_us
        try:
            directory.mkdir(parents=True)
            columns = np.stack([plan.send_ms, plan.due_ms, plan.kind.astype(np.int64)])
            np.save(directory / "plan.npy", columns, allow_pickle=False)
            self._confirmations, self._receipts, self._events = (
                os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                for name in ("confirmed.bin", "received.bin", "events.jsonl")
            )
            # Written last, and whole: an earlier death leaves nothing that looks like a ledger.
            text = json.dumps(asdict(of) | {"lead_ms": plan.lead_ms}, indent=2) + "\n"
            temporary = directory / ".round.json"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(directory / "round.json")
        except OSError as error:
            raise LedgerError(f"cannot write the ledger in {directory}: {error.strerror or error}") from error

    def confirmed(self, number: int) -> None:
        """Note that the broker has stored message ``number``."""
        self._write(self._confirmations, _CONFIRMATION.pack(number, self._now_us()))

    def received(
        self,
        number: int,
        consumer: int,
        redeliveries: int,
        place: tuple[int, int],
        *,
        received_us: int,
        acked_us: int,
    ) -> None:
        """Note that a consumer received message ``number``, stored at ``place``, and acknowledged it."""
        counted = min(max(redeliveries, 0), _U16_MAX)
        self._write(
            self._receipts, _RECEIPT.pack(number, consumer & _U16_MAX, counted, *place, received_us, acked_us)
        )

    def event(self, kind: str, at_us: int | None = None, **fields: Any) -> int:
        """Record an event, by default now; returns its time."""
        at_us = self._now_us() if at_us is None else at_us
        line = json.dumps({"kind": kind, "at_us": at_us, **fields}) + "\n"
        self._write(self._events, line.encode())
        return at_us

    def close(self) -> None:
        """Close the ledger to further events."""
        for descriptor in (self._confirmations, self._receipts, self._events):
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            written = os.write(descriptor, data)
        except OSError as error:
            raise LedgerError(f"cannot write the ledger in {self.directory}: {error.strerror}") from error
        if written != len(data):
            raise LedgerError(f"cannot write the ledger in {self.directory}: its disk is full")


def read_ledger(directory: Path) -> Record:
    """The content of the ledger in ``directory``, finished or not. Raises ``LedgerError``."""
    try:
        head = json.loads((directory / "round.json").read_text(encoding="utf-8"))
        lead_ms = head.pop("lead_ms")
        head["repeats_allowed"] = tuple(head["repeats_allowed"])
        columns = np.load(directory / "plan.npy", allow_pickle=False)
        plan = _plan_of(columns, lead_ms)
        confirmations = _read(directory / "confirmed.bin", _CONFIRMATIONS)
        receipts = _read(directory / "received.bin", _RECEIPTS)
        events = _read_events(directory / "events.jsonl")
        of = Round(**head)
    except OSError as error:
        raise LedgerError(f"cannot read the ledger in {directory}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LedgerError(f"{directory} holds no ledger of a drill that can be read: {error}") from error
    known = confirmations["number"] < len(plan)
    if not known.all() or not (receipts["number"] < len(plan)).all():
        raise LedgerError(f"the ledger in {directory} is of more messages than were planned: it is damaged")
    confirmed_us = np.full(len(plan), NEVER, np.int64)
    # The first confirmation counts: written from the latest to the earliest.
    confirmed_us[confirmations["number"][::-1]] = confirmations["confirmed_us"][::-1]
    try:
        return _with_events(Record(of, plan, confirmed_us, receipts), events)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise LedgerError(f"the events in {directory} are of another version, or damaged: {error}") from error


def _plan_of(columns: npt.NDArray[np.int64], lead_ms: int) -> Plan:
    # Older ledgers have no kinds.
    known = len(columns) > 2
    kind = columns[2] if known else np.where(columns[1] < FAR_MS, Kind.DELAYED, Kind.FAR)
    return Plan(columns[0], columns[1], kind.astype(np.int8), lead_ms)


def _read(path: Path, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    data = path.read_bytes()
    whole = len(data) // dtype.itemsize
    return np.frombuffer(data[: whole * dtype.itemsize], dtype)


def _read_events(path: Path) -> list[dict[str, Any]]:
    # A crash cut off the text after the last newline.
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def _with_events(record: Record, events: list[dict[str, Any]]) -> Record:
    strikes: list[Strike] = []
    for event in events:
        kind, at_us = event["kind"], int(event["at_us"])
        match kind:
            case "start":
                record = replace(record, round=replace(record.round, start_us=at_us))
            case "strike":
                forgets = Forgets(event["forgets"])
                rewinds = bool(event["rewinds"])
                strikes.append(
                    Strike(event["what"], at_us, forgets=forgets, rewinds=rewinds, rewind_us=at_us)
                )
            case "rewinding":
                strikes[-1] = replace(strikes[-1], rewind_us=at_us)
            case "done":
                strikes[-1] = replace(strikes[-1], done_us=at_us, evidence=event["evidence"])
            case "undo":
                strikes[-1] = replace(strikes[-1], undo_us=at_us)
            case "back":
                strikes[-1] = replace(strikes[-1], back_us=at_us)
            case "clock":
                record.clock.append((at_us, int(event["ahead_us"])))
            case "failure":
                record.failures.append(event["text"])
            case "far":
                record = replace(record, far_held=event["held"])
            case "reads":
                record.reads.append((at_us, event["counts"]))
            case "end":
                record = replace(record, finished=True)
    record.strikes.extend(strikes)
    return record
