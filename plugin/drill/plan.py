"""The messages of a drill: each with its kind, its sending time and its due time.

The plan is made, and written to disk, before the first message goes out: the verdict knows the truth without
the broker. Invariants:

- a message's number is its index in the plan's arrays, and travels in its payload;
- all times are milliseconds after the start of the round; messages stand in sending order;
- messages due tomorrow (``Kind.FAR``) are sent before the start, at full speed: the round begins with a
  backlog. They must stay, and are not awaited;
- messages sent at once are due only after the time that sending all of them takes.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

FAR_MS = 86_400_000
BEFORE = -1
"""The sending time of a message sent before the start."""
UNDELAYED = -1
"""The due time of a message without a delay."""
KEYS = 64
# A Python producer's rate on a busy machine.
SENDS_PER_S = 5_000
_LEAD_MS = 1_500
_FAR_SPREAD_MS = 120_000
_DELAYS_MS = (500, 3_000)

RETRY_LEVELS_MS = (1_000, 5_000, 10_000, 30_000)
# Shares of a mixed load, the rest without a delay; and its burst: sent until, due at, as shares of the span.
_RETRIES, _TIMEOUTS, _BURST = 0.45, 0.40, 0.10
_BURST_SENT, _BURST_DUE = 0.3, 0.9
# The span's last moments have nothing due, so that the last message shows the end.
_TAIL_MS = 500

_PAYLOAD = struct.Struct("<4sII")
_MAGIC = b"tdrl"


class Kind(IntEnum):
    """The role of a message."""

    DELAYED = 0
    FAR = 1
    PLAIN = 2
    RETRY = 3
    TIMEOUT = 4
    BURST = 5

    @property
    def title(self) -> str:
        """Its name for people."""
        return _TITLES[self]


_TITLES = {
    Kind.DELAYED: "delayed",
    Kind.FAR: "due tomorrow",
    Kind.PLAIN: "without a delay",
    Kind.RETRY: "retries",
    Kind.TIMEOUT: "order time-outs",
    Kind.BURST: "burst",
}


class Shape(StrEnum):
    """The messages' due times.

    EVEN: evenly over the span; half of them are sent at its beginning, half on the way. BURST: at one
    instant. HOLES: every other one at the beginning, the others at the end of the span. MIXED: 45 % retries
    at fixed delays, 40 % order time-outs (uniform between half and one and a half times a quarter of the
    span), 10 % a burst at one instant, the rest without a delay.
    """

    EVEN = "even"
    BURST = "burst"
    HOLES = "holes"
    MIXED = "mixed"


@dataclass(frozen=True)
class Load:
    """The load of a drill. ``far``: further messages due tomorrow, as a share of ``messages``."""

    messages: int = 4_000
    span_s: float = 10.0
    shape: Shape = Shape.EVEN
    far: float = 0.5

    @property
    def far_messages(self) -> int:
        """Number of messages due tomorrow."""
        return round(self.messages * self.far)


@dataclass(frozen=True)
class Plan:
    """Three arrays of one length, and the earliest due time of the first message (``lead_ms``)."""

    send_ms: Int64
    due_ms: Int64
    kind: Kinds
    lead_ms: int

    def __len__(self) -> int:
        return len(self.send_ms)

    @functools.cached_property
    def expected(self) -> npt.NDArray[np.bool_]:
        """A mask of the messages to be received within the round."""
        expected: npt.NDArray[np.bool_] = self.due_ms < FAR_MS
        return expected

    @functools.cached_property
    def delayed(self) -> npt.NDArray[np.bool_]:
        """A mask of the messages with a due time."""
        delayed: npt.NDArray[np.bool_] = self.due_ms != UNDELAYED
        return delayed

    @functools.cached_property
    def end_ms(self) -> int:
        """The time of the last message to be received."""
        return int(np.maximum(self.due_ms, self.send_ms)[self.expected].max(initial=0))

    @functools.cached_property
    def before(self) -> int:
        """Number of messages sent before the start."""
        return int(np.count_nonzero(self.send_ms == BEFORE))

    @functools.cached_property
    def keys(self) -> Int64:
        """The key of each message; computed once, since the sender reads each."""
        return np.arange(len(self), dtype=np.int64) % KEYS

    def count(self, kind: Kind) -> int:
        """Number of messages of a kind."""
        return int(np.count_nonzero(self.kind == kind))


_Part = tuple[Int64, Int64, Kind]


def plan(load: Load, seed: int, sends_per_s: int = SENDS_PER_S) -> Plan:
    """One round's messages; those sent at once are stored at ``sends_per_s`` before they are due."""
    random = np.random.default_rng(seed)
    if load.shape is Shape.MIXED:
        lead_ms, parts = 0, _mixed(load, random)
    else:
        lead_ms, parts = _delayed(load, random, sends_per_s)
    parts = [_far(load.far_messages), *parts]
    send_ms, due_ms = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    kind = np.concatenate([np.full(len(part[0]), part[2], np.int8) for part in parts])
    order = np.argsort(send_ms, kind="stable")
    return Plan(send_ms[order], due_ms[order], kind[order], lead_ms)


def encode(run: int, number: int) -> bytes:
    """The payload of message ``number`` of the run ``run`` (32 bits each)."""
    return _PAYLOAD.pack(_MAGIC, run, number)


def decode(run: int, payload: bytes) -> int | None:
    """The message's number; None for a message of another run."""
    if len(payload) != _PAYLOAD.size:
        return None
    magic, of_run, number = _PAYLOAD.unpack(payload)
    return int(number) if (magic, of_run) == (_MAGIC, run) else None


def _far(count: int) -> _Part:
    due_ms = FAR_MS + np.arange(count, dtype=np.int64) * _FAR_SPREAD_MS // max(count, 1)
    return np.full(count, BEFORE, np.int64), due_ms, Kind.FAR


def _delayed(load: Load, random: np.random.Generator, sends_per_s: int) -> tuple[int, list[_Part]]:
    count, span_ms = load.messages, int(load.span_s * 1000)
    on_the_way = count // 2 if load.shape is Shape.EVEN else 0
    lead_ms = _LEAD_MS + (count - on_the_way) * 1000 // sends_per_s
    end_ms = lead_ms + span_ms
    delay_ms = later = np.zeros(0, np.int64)
    match load.shape:
        case Shape.BURST:
            due_at_once = np.full(count, lead_ms, np.int64)
        case Shape.HOLES:
            due_at_once = np.where(np.arange(count) % 2, lead_ms, end_ms)
        case _:
            due_at_once = random.integers(lead_ms, end_ms, count - on_the_way)
            delay_ms = random.integers(*_DELAYS_MS, on_the_way)
            later = lead_ms + random.integers(0, max(span_ms - _DELAYS_MS[1], 1), on_the_way)
    return lead_ms, [
        (np.zeros(len(due_at_once), np.int64), due_at_once, Kind.DELAYED),
        (later, later + delay_ms, Kind.DELAYED),
    ]


def _mixed(load: Load, random: np.random.Generator) -> list[_Part]:
    end_ms = max(int(load.span_s * 1000) - _TAIL_MS, 1)
    retries, timeouts, burst = (int(load.messages * share) for share in (_RETRIES, _TIMEOUTS, _BURST))
    plain = load.messages - retries - timeouts - burst

    def uniform(count: int, until_ms: float | Int64) -> Int64:
        return (random.random(count) * until_ms).astype(np.int64)

    levels = [level for level in RETRY_LEVELS_MS if level <= end_ms / 2] or [end_ms // 2]
    retry_delay_ms = np.array(levels, np.int64)[random.integers(0, len(levels), retries)]
    retry_ms = uniform(retries, end_ms - retry_delay_ms)
    timeout_delay_ms = (end_ms / 4 * (0.5 + random.random(timeouts))).astype(np.int64)
    timeout_ms = uniform(timeouts, end_ms - timeout_delay_ms)
    return [
        (retry_ms, retry_ms + retry_delay_ms, Kind.RETRY),
        (timeout_ms, timeout_ms + timeout_delay_ms, Kind.TIMEOUT),
        (
            uniform(burst, end_ms * _BURST_SENT),
            np.full(burst, int(end_ms * _BURST_DUE), np.int64),
            Kind.BURST,
        ),
        (uniform(plain, end_ms), np.full(plain, UNDELAYED, np.int64), Kind.PLAIN),
    ]
