"""The messages of a drill: each with its sending time and its due time.

The plan is made, and written to disk, before the first message goes out, so that the verdict knows the truth
without the broker. Invariants:

- a message's number is its index in the plan's arrays, and travels in its payload;
- all times are milliseconds after the start of the round; messages stand in sending order;
- messages due after ``FAR_MS`` or more are not waited for: they must stay where they are;
- messages sent at once are due only when there was time to send all of them.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

FAR_MS = 86_400_000
KEYS = 64
# The rate of a producer in Python on a busy machine.
SENDS_PER_S = 5_000
_LEAD_MS = 1_500
_FAR_SPREAD_MS = 120_000
_DELAYS_MS = (500, 3_000)

_PAYLOAD = struct.Struct("<4sII")
_MAGIC = b"tdrl"


class Shape(StrEnum):
    """When the messages are due.

    EVEN: evenly over the span; half of them are sent at its beginning, half on the way. BURST: at one
    instant. HOLES: every other one at the beginning, the others at the end of the span.
    """

    EVEN = "even"
    BURST = "burst"
    HOLES = "holes"


@dataclass(frozen=True)
class Load:
    """The load of a drill. ``far``: further messages due tomorrow, as a share of ``messages``."""

    messages: int = 4_000
    span_s: float = 10.0
    shape: Shape = Shape.EVEN
    far: float = 0.5


@dataclass(frozen=True)
class Plan:
    """Two arrays of one length, and the earliest due time of the first message (``lead_ms``)."""

    send_ms: Int64
    due_ms: Int64
    lead_ms: int

    def __len__(self) -> int:
        return len(self.send_ms)

    @functools.cached_property
    def expected(self) -> npt.NDArray[np.bool_]:
        """A mask of the messages due within the round."""
        expected: npt.NDArray[np.bool_] = self.due_ms < FAR_MS
        return expected

    @functools.cached_property
    def end_ms(self) -> int:
        """The due time of the last of these."""
        return int(self.due_ms[self.expected].max(initial=0))

    @functools.cached_property
    def keys(self) -> Int64:
        """The key of each message; computed once, since the sender reads each."""
        return np.arange(len(self), dtype=np.int64) % KEYS


def plan(load: Load, seed: int, sends_per_s: int = SENDS_PER_S) -> Plan:
    """The messages of one round; those sent at once are stored at ``sends_per_s`` before they are due."""
    random = np.random.default_rng(seed)
    count, span_ms = load.messages, int(load.span_s * 1000)
    far = int(count * load.far)
    on_the_way = count // 2 if load.shape is Shape.EVEN else 0
    lead_ms = _LEAD_MS + (count - on_the_way + far) * 1000 // sends_per_s
    end_ms = lead_ms + span_ms
    at_once = np.zeros(count - on_the_way, np.int64)
    match load.shape:
        case Shape.EVEN:
            due_at_once = random.integers(lead_ms, end_ms, len(at_once))
            delay_ms = random.integers(*_DELAYS_MS, on_the_way)
            later = lead_ms + random.integers(0, max(span_ms - _DELAYS_MS[1], 1), on_the_way)
        case Shape.BURST:
            due_at_once = np.full(count, lead_ms, np.int64)
            delay_ms = later = np.zeros(0, np.int64)
        case Shape.HOLES:
            due_at_once = np.where(np.arange(count) % 2, lead_ms, end_ms)
            delay_ms = later = np.zeros(0, np.int64)
    far_ms = FAR_MS + np.arange(far, dtype=np.int64) * _FAR_SPREAD_MS // max(far, 1)
    send_ms = np.concatenate([np.zeros(far, np.int64), at_once, later])
    due_ms = np.concatenate([far_ms, due_at_once, later + delay_ms])
    order = np.argsort(send_ms, kind="stable")
    return Plan(send_ms[order], due_ms[order], lead_ms)


def encode(run: int, number: int) -> bytes:
    """The payload of message ``number`` of the run ``run`` (32 bits each)."""
    return _PAYLOAD.pack(_MAGIC, run, number)


def decode(run: int, payload: bytes) -> int | None:
    """The message's number; None for a message of another run."""
    if len(payload) != _PAYLOAD.size:
        return None
    magic, of_run, number = _PAYLOAD.unpack(payload)
    return int(number) if (magic, of_run) == (_MAGIC, run) else None
