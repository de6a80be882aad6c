"""The tasks of a job: backlog into parts, parts into slice files. No Spark in here.

    ranges of ledgers ─► read/TASK.entries (sorted by time) ─► slices/TARGET-NUMBER.blocks (a span of time)

Files stand between the stages, not a shuffle: a restarted job finds its parts, and a task that runs twice
rewrites its file. A slice file is a row of the index's blocks in order of time, each after its length (u32,
little-endian).
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tidegate.index import Entries, sort_entries
from tidegate.index.format import decode_block, encode_block
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.part_file import DamagedError, encode_part, read_span
from tidegate.pipeline.rebuild.plan import Task
from tidegate.pipeline.topic.cluster import Cluster
from tidegate.pipeline.topic.reader import EntryReader

READ = "read"
SLICES = "slices"
PART = ".entries"
"""The ending of a part's file name."""
_BLOCK_ENTRIES = 65_536
_QUANTILES = 64
_LENGTH = struct.Struct("<I")


class Part(NamedTuple):
    """The result of a reading task.

    read: the number of entries examined. quantiles: evenly spaced delivery times, the first and the last
    among them.
    """

    target: int
    name: str
    entries: int
    read: int
    quantiles: tuple[int, ...]


class Bin(NamedTuple):
    """The content of one slice file: the entries of some parts due in a span of time, both ends inclusive."""

    target: int
    number: int
    low_ms: int
    high_ms: int
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of its file: names are in order of time."""
        return f"{self.target}-{self.number:06}"


class SliceFile(NamedTuple):
    """A slice file that counts, and the seconds for gathering, sorting and encoding its entries."""

    target: int
    name: str
    entries: int
    size_bytes: int
    gathered_s: float = 0.0
    sorted_s: float = 0.0
    encoded_s: float = 0.0

    @property
    def read(self) -> int:
        """The number of entries that the stage completes with it."""
        return self.entries


def read_task(cluster: Cluster, files: Files, task: Task) -> Part:
    """Read the delayed entries of a task into its part."""
    entries, count = _entries(cluster, task)
    files.write(part_path(task.name), encode_part(entries))
    return Part(task.target, task.name, len(entries), count, tuple(_quantiles(entries.deliver_at_ms)))


def bins(parts: Sequence[Part], entries_per_file: int) -> list[Bin]:
    """Spans of time with about as many entries each. Pure.

    Time cannot cut a burst due at one instant: its parts are divided among several files.
    """
    made: list[Bin] = []
    for target in sorted({part.target for part in parts}):
        mine = [part for part in parts if part.target == target and part.entries]
        names = tuple(part.name for part in mine)
        total = sum(part.entries for part in mine)
        if not total:
            continue
        times = np.concatenate([np.asarray(part.quantiles, np.int64) for part in mine])
        weights = np.concatenate(
            [np.full(len(part.quantiles), part.entries / len(part.quantiles)) for part in mine]
        )
        order = np.argsort(times, kind="stable")
        times, weights = times[order], np.cumsum(weights[order])
        files = -(-total // entries_per_file)
        wanted = np.searchsorted(weights, np.arange(1, files) * total / files)
        cuts, repeats = np.unique(times[np.minimum(wanted, len(times) - 1)], return_counts=True)
        number, low = 0, int(times[0])
        # An instant with more than a file's worth is its own span.
        before = [cut - 1 for cut in cuts[repeats > 1].tolist() if cut > low]
        for high in sorted({*cuts.tolist(), *before, int(times[-1])}):
            first, last = np.searchsorted(times, low), np.searchsorted(times, high, side="right") - 1
            about = weights[last] - (weights[first - 1] if first else 0)
            groups = max(1, round(about / entries_per_file)) if low == high else 1
            for group in range(min(groups, len(names))):
                made.append(Bin(target, number, low, high, names[group::groups]))
                number += 1
            low = high + 1
    return made


def pack(files: Files, wanted: Bin) -> SliceFile:
    """Make a slice file."""
    times_s = [time.monotonic()]
    parts = [span(files, part_path(name), wanted.low_ms, wanted.high_ms) for name in wanted.parts]
    times_s.append(time.monotonic())
    entries = sort_entries(Entries.concat(parts), unique=True)
    times_s.append(time.monotonic())
    data = to_bytes(entries)
    times_s.append(time.monotonic())
    files.write(f"{SLICES}/{wanted.name}.blocks", data)
    took_s = (after - before for before, after in pairwise(times_s))
    return SliceFile(wanted.target, wanted.name, len(entries), len(data), *took_s)


def to_bytes(entries: Entries) -> bytes:
    """A slice file's content for these sorted entries."""
    packed = io.BytesIO()
    for start in range(0, len(entries), _BLOCK_ENTRIES):
        block = encode_block(entries.part(start, min(len(entries), start + _BLOCK_ENTRIES)))
        packed.write(_LENGTH.pack(len(block)))
        packed.write(block)
    return packed.getvalue()


def blocks(data: bytes, name: str) -> Iterator[tuple[bytes, Entries]]:
    """The blocks of a slice file, packed and unpacked. Raises ``PipelineError`` if it is damaged."""
    at = 0
    while at < len(data):
        begin = at + _LENGTH.size
        size = _LENGTH.unpack_from(data, at)[0] if begin <= len(data) else len(data)
        at = begin + size
        try:
            yield data[begin:at], decode_block(data[begin:at])
        except Exception as error:
            raise PipelineError(f"the slice file {name} is damaged: {error}; start the job again") from error


def entries_in(files: Files, one: SliceFile) -> Entries:
    """The entries of a slice file. Raises ``PipelineError`` if it is damaged."""
    data = files.read(f"{SLICES}/{one.name}.blocks")
    return Entries.concat(block for _, block in blocks(data, one.name))


def entries_of(files: Files, task: Task) -> Entries:
    """The entries that a task has read."""
    return span(files, part_path(task.name))


def _entries(cluster: Cluster, task: Task) -> tuple[Entries, int]:
    """The delayed entries of a task, sorted; and the number of entries examined."""
    parts, count = [], 0
    with EntryReader(cluster) as reader:
        for one in task.ranges:
            for found in reader.delayed(one):
                count += found.looked_at
                ledger = np.full(len(found.entry_ids), found.ledger_id, np.int64)
                parts.append(Entries(found.deliver_at_ms, ledger, found.entry_ids))
    entries = Entries.concat(parts)
    # A time before 1970 means no delay.
    return sort_entries(entries.take(entries.deliver_at_ms >= 0), unique=True), count


def part_path(name: str) -> str:
    """The path of a part."""
    return f"{READ}/{name}{PART}"


def span(files: Files, path: str, low_ms: int | None = None, high_ms: int | None = None) -> Entries:
    """The entries of a sorted file due in a span of time, both ends inclusive; all without them."""
    try:
        with files.open(path) as file:
            return read_span(file, path, low_ms, high_ms)
    except DamagedError:
        # As after a power failure. A missing file is read again from the topic.
        files.drop(path)
        raise


def _quantiles(times: Any) -> list[int]:
    if not len(times):
        return []
    at = np.unique(np.linspace(0, len(times) - 1, min(_QUANTILES, len(times))).astype(np.int64))
    return [int(value) for value in times[at]]
