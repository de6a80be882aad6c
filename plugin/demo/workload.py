"""The demo's messages: each with its kind, its sending time and its due time.

The plan is complete before the first message goes out, so that the audit knows the truth without the broker.
Invariants:

- a message's number is its index in the plan's arrays, and travels in its payload;
- all times are milliseconds after the start of the run; ``due_ms`` is -1 for a plain message;
- everything but ``Kind.FAR`` is due before the run ends, so that the run can wait for it; messages due
  tomorrow are sent before the start (``send_ms`` is -1), at full speed: the run then shows a broker that has
  a backlog, not one that is building it up;
- the messages are in sending order; the burst is sent before the first kill and due after the second.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

RETRY_LEVELS_MS = (1_000, 5_000, 10_000, 30_000)
BURST_AT = 0.9
FIRST_KILL_AT = 1 / 3
SECOND_KILL_AT = 2 / 3
DAY_MS = 86_400_000
FAR_SPREAD_MS = 120_000
# Nothing is due in the run's last moments, so that the last message shows the end.
_TAIL_MS = 500
_SHARES = {"retry": 0.45, "timeout": 0.40, "burst": 0.10}

_PAYLOAD = struct.Struct("<4sI")
_MAGIC = b"tide"

Int64 = npt.NDArray[np.int64]


class Kind(IntEnum):
    """The role of a message."""

    PLAIN = 0
    RETRY = 1
    TIMEOUT = 2
    BURST = 3
    FAR = 4

    @property
    def title(self) -> str:
        """Its name for people."""
        return _TITLES[self]


_TITLES = {
    Kind.PLAIN: "plain messages",
    Kind.RETRY: "retries",
    Kind.TIMEOUT: "order time-outs",
    Kind.BURST: "burst",
    Kind.FAR: "due tomorrow",
}


@dataclass(frozen=True)
class Workload:
    """The plan: three arrays of one length, in sending order."""

    kind: npt.NDArray[np.int8]
    send_ms: Int64
    due_ms: Int64

    def __len__(self) -> int:
        return len(self.kind)

    def count(self, kind: Kind) -> int:
        """How many messages of ``kind`` the plan holds."""
        return int(np.count_nonzero(self.kind == kind))


def plan(messages: int, seconds: float, far: int, seed: int = 1) -> Workload:
    """``messages`` due within ``seconds``, and ``far`` more due within two minutes a day later.

    Of the first, 45 % are retries at fixed levels, 40 % order time-outs (uniform between half and one and a
    half times a quarter of the run), 10 % a burst due at one instant, the rest plain.
    """
    random = np.random.default_rng(seed)
    end_ms = max(int(seconds * 1000) - _TAIL_MS, 1)
    counts = {name: int(messages * share) for name, share in _SHARES.items()}
    parts = [
        _retries(random, counts["retry"], end_ms),
        _timeouts(random, counts["timeout"], end_ms),
        _burst(random, counts["burst"], end_ms),
        _plain(random, messages - sum(counts.values()), end_ms),
        _far(far),
    ]
    kind, send_ms, due_ms = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(send_ms, kind="stable")
    return Workload(kind[order].astype(np.int8), send_ms[order], due_ms[order])


def encode(number: int) -> bytes:
    """The payload of message ``number``."""
    return _PAYLOAD.pack(_MAGIC, number)


def decode(payload: bytes) -> int:
    """The message's number. Raises ``ValueError`` for a payload that ``encode`` did not make."""
    if len(payload) != _PAYLOAD.size or not payload.startswith(_MAGIC):
        raise ValueError("a message on the demo's topic was not sent by the demo")
    number: int = _PAYLOAD.unpack(payload)[1]
    return number


_Part = tuple[Int64, Int64, Int64]


def _part(kind: Kind, send_ms: Int64, due_ms: Int64) -> _Part:
    return np.full(len(send_ms), kind, np.int64), send_ms, due_ms


def _uniform(random: np.random.Generator, count: int, until_ms: int | Int64) -> Int64:
    return (random.random(count) * until_ms).astype(np.int64)


def _retries(random: np.random.Generator, count: int, end_ms: int) -> _Part:
    levels: Sequence[int] = [level for level in RETRY_LEVELS_MS if level <= end_ms / 2] or [end_ms // 2]
    delay_ms = np.array(levels, np.int64)[random.integers(0, len(levels), count)]
    send_ms = _uniform(random, count, end_ms - delay_ms)
    return _part(Kind.RETRY, send_ms, send_ms + delay_ms)


def _timeouts(random: np.random.Generator, count: int, end_ms: int) -> _Part:
    mean_ms = end_ms / 4
    delay_ms = (mean_ms * (0.5 + random.random(count))).astype(np.int64)
    send_ms = _uniform(random, count, end_ms - delay_ms)
    return _part(Kind.TIMEOUT, send_ms, send_ms + delay_ms)


def _burst(random: np.random.Generator, count: int, end_ms: int) -> _Part:
    send_ms = _uniform(random, count, int(end_ms * FIRST_KILL_AT * 0.9))
    return _part(Kind.BURST, send_ms, np.full(count, int(end_ms * BURST_AT), np.int64))


def _plain(random: np.random.Generator, count: int, end_ms: int) -> _Part:
    return _part(Kind.PLAIN, _uniform(random, count, end_ms), np.full(count, -1, np.int64))


def _far(count: int) -> _Part:
    due_ms = DAY_MS + np.arange(count, dtype=np.int64) * FAR_SPREAD_MS // max(count, 1)
    return _part(Kind.FAR, np.full(count, -1, np.int64), due_ms)
