"""Messages with arrival and due times: seeded shapes, and traces from a file.

A workload is two int64 columns in order of arrival: an entry's arrival (ms after the beginning) and its
delay. `Workload.entries` makes entries from ``START_MS`` on, with positions that count up as a topic's, so
that one identifies its entry in the workload (`sequences`).

A trace is a CSV file whose first line is ``deliver_after_ms`` or ``deliver_after_ms,arrive_ms``, or an NPY
file of a structured array with those fields; whole milliseconds, a row a message. ``arrive_ms`` may start
anywhere.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.harness.errors import BenchError
from tidegate.index import Entries, Int64Array

START_MS = 1_800_000_000_000
"""The beginning of every workload: the top of an hour."""
ENTRIES_PER_LEDGER = 50_000
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
YEAR_MS = 365 * DAY_MS
DELAY_MAX_MS = 100 * YEAR_MS
LEVELS_MS = (
    *(seconds * SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * HOUR_MS for hours in (1, 2)),
)
"""RocketMQ 4's delay levels."""
COLUMNS = ("deliver_after_ms", "arrive_ms")


@dataclass(frozen=True)
class Workload:
    """Messages in order of arrival: ``arrive_ms`` ascending from 0, ``deliver_after_ms`` 0 or more."""

    name: str
    title: str
    deliver_after_ms: Int64Array
    arrive_ms: Int64Array

    def __len__(self) -> int:
        return len(self.arrive_ms)

    def arrive_at_ms(self) -> Int64Array:
        """The arrival of each entry, ms since the epoch."""
        return START_MS + self.arrive_ms

    def entries(self) -> Entries:
        """The entries, with positions in order of arrival."""
        ledger_id, entry_id = positions(np.arange(len(self), dtype=np.int64))
        return Entries(self.arrive_at_ms() + self.deliver_after_ms, ledger_id, entry_id)


def positions(sequence: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(ledger_id, entry_id) of the entries with these numbers."""
    return 1 + sequence // ENTRIES_PER_LEDGER, sequence % ENTRIES_PER_LEDGER


def sequences(entries: Entries) -> Int64Array:
    """The numbers of these entries in the workload, from 0."""
    return (entries.ledger_id - 1) * ENTRIES_PER_LEDGER + entries.entry_id


@dataclass(frozen=True)
class Shape:
    """A seeded workload: ``delays(count, generator)`` in ms; the messages arrive evenly over a time."""

    title: str
    delays: Callable[[int, np.random.Generator], Int64Array]
    arrive_over_ms: int = 0


def _uniform(count: int, generator: np.random.Generator) -> Int64Array:
    return generator.integers(0, DAY_MS, count)


def _levels(count: int, generator: np.random.Generator) -> Int64Array:
    return generator.choice(np.array(LEVELS_MS, dtype=np.int64), count)


def _orders(count: int, generator: np.random.Generator) -> Int64Array:
    return 30 * MINUTE_MS + generator.integers(-30 * SECOND_MS, 30 * SECOND_MS + 1, count)


def _hourly(count: int, generator: np.random.Generator) -> Int64Array:
    """Nine of ten within about a second after the top of an hour of the next day, others anywhere."""
    tops = generator.integers(1, 24, count) * HOUR_MS + generator.exponential(300.0, count).astype(np.int64)
    anywhere = generator.integers(0, DAY_MS, count)
    return np.where(generator.random(count) < 0.9, tops, anywhere)


def _tail(count: int, generator: np.random.Generator) -> Int64Array:
    """As many between 1 s and 1 min as between 1 h and 60 h: uniform in the logarithm."""
    low, high = np.log(SECOND_MS), np.log(YEAR_MS)
    return np.exp(generator.uniform(low, high, count)).astype(np.int64)


UNIFORM = "uniform"
SHAPES: dict[str, Shape] = {
    UNIFORM: Shape("due evenly over 24 h", _uniform),
    "levels": Shape("the 18 fixed delays, sent over an hour", _levels, HOUR_MS),
    "orders": Shape("30 min ± 30 s, sent over an hour", _orders, HOUR_MS),
    "hourly": Shape("bursts at the top of each hour of a day", _hourly),
    "tail": Shape("heavy tail, 1 s to a year", _tail),
}


def seeded(name: str, count: int, seed: int) -> Workload:
    """``count`` messages of a shape; the same for the same seed."""
    shape = SHAPES[name]
    delays = shape.delays(count, np.random.default_rng(seed))
    arrive = np.arange(count, dtype=np.int64) * shape.arrive_over_ms // max(1, count)
    return Workload(name, shape.title, delays, arrive)


def from_trace(path: Path) -> Workload:
    """The messages of a trace file; raises BenchError with the mistake in it."""
    if path.suffix == ".csv":
        delays, arrive = _read_csv(path)
    elif path.suffix == ".npy":
        delays, arrive = _read_npy(path)
    else:
        raise BenchError(f"the trace {path} must be a .csv or .npy file with the columns {','.join(COLUMNS)}")
    if not len(delays):
        raise BenchError(f"the trace {path} has no messages")
    for place in np.flatnonzero((delays < 0) | (delays > DELAY_MAX_MS))[:1]:
        raise BenchError(
            f"message {place + 1} of the trace {path} has deliver_after_ms {delays[place]}; "
            f"it must be 0 … {DELAY_MAX_MS}"
        )
    order = np.argsort(arrive, kind="stable")
    arrive = arrive[order] - arrive[order[0]]
    if int(arrive[-1]) > DELAY_MAX_MS:
        raise BenchError(
            f"the messages of the trace {path} arrive over more than 100 years: is arrive_ms in ms?"
        )
    return Workload("trace", f"trace {path.name}", delays[order], arrive)


def _read_csv(path: Path) -> tuple[Int64Array, Int64Array]:
    try:
        with path.open(encoding="utf-8") as file:
            header = [word.strip() for word in file.readline().split(",")]
            columns = _columns(path, header)
            rows = np.loadtxt(file, dtype=np.int64, delimiter=",", ndmin=2, comments=None)
    except OSError as error:
        raise BenchError(f"the trace {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BenchError(f"the trace {path} is not a text file") from error
    except (ValueError, OverflowError) as error:
        raise BenchError(
            f"the trace {path} must have {len(header)} whole numbers a line below its header: {error}"
        ) from error
    if rows.size and rows.shape[1] != len(columns):
        raise BenchError(
            f"the trace {path} has {rows.shape[1]} numbers a line, its header names {len(columns)}"
        )
    rows = rows.reshape(-1, len(columns))
    return _pair({name: rows[:, at] for at, name in enumerate(columns)})


def _read_npy(path: Path) -> tuple[Int64Array, Int64Array]:
    try:
        table = np.load(path, allow_pickle=False)
    except OSError as error:
        raise BenchError(f"the trace {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BenchError(f"the trace {path} is not an NPY file of numbers") from error
    if not isinstance(table, np.ndarray) or table.dtype.names is None or table.ndim != 1:
        raise BenchError(
            f"the trace {path} must hold a structured array with the fields {', '.join(COLUMNS)}"
        )
    columns = _columns(path, list(table.dtype.names))
    for name in columns:
        if table.dtype[name].kind not in "iu":
            raise BenchError(
                f"the field {name} of the trace {path} must be of integers, not {table.dtype[name]}"
            )
    return _pair({name: table[name].astype(np.int64) for name in columns})


def _columns(path: Path, found: list[str]) -> list[str]:
    if sorted(found) not in (sorted(COLUMNS), [COLUMNS[0]]):
        raise BenchError(
            f"the trace {path} must begin with the columns {COLUMNS[0]} or {','.join(COLUMNS)}, "
            f"not {','.join(found)[:80]!r}"
        )
    return found


def _pair(columns: dict[str, Int64Array]) -> tuple[Int64Array, Int64Array]:
    delays = columns[COLUMNS[0]]
    return delays, columns.get(COLUMNS[1], np.zeros(len(delays), dtype=np.int64))
