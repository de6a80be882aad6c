"""The cost of the parts that every path of the index needs: memory, sort, packing, disk, lock.

A function measures one thing, by the median of its repeats, in the unit of its name or docstring, with only
the index's packed format and store. ``python -m bench.bounds.worker DIR`` prints all as one line of JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from pyroaring import BitMap64

from bench.harness.made_entries import START_MS, Source
from bench.harness.meters import MIB
from bench.harness.worker_process import tell_and_wait
from tidegate.index import ENTRY_BYTES, Batch, Entries, RocksStore
from tidegate.index.format import pack_entries, unpack_entries

BLOCK = 65_536  # entries
COMMIT = 10_000  # entries of one group commit
POP = 8_192  # entries of one pop
SORTED = 1 << 20


def median_s(work: Callable[[], Any], repeats: int) -> float:
    """Median seconds of a call, after one uncounted call."""
    work()
    times = []
    for _ in range(repeats):
        began_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - began_s)
    return float(np.median(times))


def copy_ns(entries: int = 1 << 23) -> float:
    """Copying an entry's 24 bytes, from memory to memory."""
    source = np.ones(entries * ENTRY_BYTES // 8, np.int64)
    target = np.empty_like(source)
    return median_s(lambda: np.copyto(target, source), 7) * 1e9 / entries


def sort_ns() -> float:
    """Sorting one of a million random 64-bit keys, without the copy that it needs."""
    keys = np.random.default_rng(1).integers(0, 1 << 62, SORTED)
    fresh = keys.copy()
    copying_s = median_s(lambda: np.copyto(fresh, keys), 7)

    def work() -> None:
        np.copyto(fresh, keys)
        fresh.sort()

    return (median_s(work, 7) - copying_s) * 1e9 / SORTED


def block() -> Entries:
    """A full block of sorted entries, due evenly over one slice of an hour."""
    made = Source(3_600_000, START_MS).entries(0, BLOCK)
    order = np.lexsort((made.entry_id, made.ledger_id, made.deliver_at_ms))
    return made.take(order)


def packing() -> dict[str, float]:
    """pcodec as the index uses it: ns an entry to encode and to decode, bytes an entry."""
    entries = block()
    packed = pack_entries(entries, compress=True)
    return {
        "encode_ns": median_s(lambda: pack_entries(entries, compress=True), 9) * 1e9 / BLOCK,
        "decode_ns": median_s(lambda: unpack_entries(memoryview(packed)), 9) * 1e9 / BLOCK,
        "packed_bytes": len(packed) / BLOCK,
    }


def zstd_packing() -> dict[str, float]:
    """The alternative: differences, bytes shuffled, zstd level 3 (through Arrow); {} without Arrow."""
    if importlib.util.find_spec("pyarrow") is None:
        return {}
    codec = importlib.import_module("pyarrow").Codec("zstd", compression_level=3)
    entries = block()
    columns = (entries.deliver_at_ms, entries.ledger_id, entries.entry_id)

    def encode() -> bytes:
        steps = [np.diff(column, prepend=column[:1]) for column in columns]
        shuffled = np.concatenate([step.view(np.uint8).reshape(-1, 8).T.ravel() for step in steps])
        return bytes(codec.compress(shuffled, asbytes=True))

    packed = encode()

    def decode() -> list[Any]:
        raw = np.frombuffer(codec.decompress(packed, BLOCK * ENTRY_BYTES), np.uint8).reshape(3, 8, BLOCK)
        steps = [np.ascontiguousarray(part.T).view(np.int64).ravel() for part in raw]
        return [np.cumsum(step) + column[0] for step, column in zip(steps, columns, strict=True)]

    if not all(np.array_equal(ours, right) for ours, right in zip(decode(), columns, strict=True)):
        raise RuntimeError("zstd gave back something else")
    return {
        "zstd_encode_ns": median_s(encode, 9) * 1e9 / BLOCK,
        "zstd_decode_ns": median_s(decode, 9) * 1e9 / BLOCK,
        "zstd_bytes": len(packed) / BLOCK,
    }


def crc_gb_s() -> float:
    """CRC-32 of half a megabyte, GB/s."""
    data = os.urandom(MIB // 2)
    return len(data) / median_s(lambda: zlib.crc32(data), 21) / 1e9


def roaring() -> dict[str, float]:
    """64-bit roaring bitmaps, ns an entry: a pop's random positions, and a consecutive batch as a range."""
    generator = np.random.default_rng(1)
    held = BitMap64(np.arange(4_000_000, dtype=np.uint64))
    chosen = np.sort(generator.choice(4_000_000, POP, replace=False).astype(np.uint64))
    scattered = array("Q", chosen.tobytes())
    consecutive = np.arange(COMMIT, dtype=np.uint64) + np.uint64(5_000_000)

    def test() -> int:
        return len(held & BitMap64(scattered))

    def remove() -> None:
        held.difference_update(BitMap64(scattered))

    def put_back() -> None:
        held.update(BitMap64(scattered))

    def in_and_out() -> None:
        remove()
        put_back()

    def append() -> None:
        if (np.diff(consecutive) == 1).all():
            held.add_range(int(consecutive[0]), int(consecutive[-1]) + 1)
            held.remove_range(int(consecutive[0]), int(consecutive[-1]) + 1)

    return {
        "look_up_ns": median_s(test, 21) * 1e9 / POP,
        "take_out_ns": median_s(in_and_out, 21) * 1e9 / POP / 2,
        "put_in_ns": median_s(append, 21) * 1e9 / COMMIT,
    }


def commits(folder: Path) -> dict[str, float]:
    """Synced writes of the store, ms each: one small record, and a group commit of 10,000 entries."""
    store = RocksStore.open(folder / "store")
    sequence = 0

    def commit(value: bytes) -> None:
        nonlocal sequence
        sequence += 1
        batch = Batch()
        batch.put(b"J" + sequence.to_bytes(8, "big"), value)
        store.write(batch, sync=True)

    small, large = os.urandom(64), os.urandom(COMMIT * 8)
    figures = {
        "sync_small_ms": median_s(lambda: commit(small), 60) * 1e3,
        "sync_commit_ms": median_s(lambda: commit(large), 60) * 1e3,
    }
    store.close()
    return figures


def disk(folder: Path) -> dict[str, float]:
    """The disk: ms of an fdatasync after 80 KB, MB/s of writing and syncing 128 MiB in a row."""
    path, piece = folder / "file", os.urandom(MIB)
    with path.open("wb", buffering=0) as file:

        def append() -> None:
            file.write(piece[: COMMIT * 8])
            os.fdatasync(file.fileno())

        sync_ms = median_s(append, 60) * 1e3

    def write_all() -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(128):
                file.write(piece)
            os.fdatasync(file.fileno())

    return {"disk_sync_ms": sync_ms, "disk_mb_s": 128 * MIB / median_s(write_all, 3) / 1e6}


def executor_us() -> float:
    """A round trip from the event loop through an executor's thread, microseconds."""

    async def measure() -> float:
        loop, times = asyncio.get_running_loop(), []
        with ThreadPoolExecutor(1) as executor:
            for _ in range(1_000):
                began_s = time.perf_counter()
                await loop.run_in_executor(executor, int)
                times.append(time.perf_counter() - began_s)
        return float(np.median(times)) * 1e6

    return asyncio.run(measure())


def lock_wait_ms(work: Callable[[], Any]) -> float:
    """Median ms of 100 in which a thread waits for the interpreter lock while another works.

    Python asks for the lock every 5 ms; native code gives it at once if it releases it, else at its end.
    """
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=busy)
    thread.start()
    waits = []
    for _ in range(100):
        time.sleep(0.0002)  # meanwhile the other thread has the lock
        began_s = time.perf_counter()
        time.sleep(0)  # releases the lock and takes it again
        waits.append(time.perf_counter() - began_s)
    stop.set()
    thread.join()
    return float(np.median(waits)) * 1e3


def locks() -> dict[str, float]:
    """``lock_wait_ms`` beside a loop in Python, and beside a sort that releases the lock."""
    keys = np.random.default_rng(1).integers(0, 1 << 62, BLOCK)
    return {
        "lock_python_ms": lock_wait_ms(lambda: sum(range(10_000))),
        "lock_sort_ms": lock_wait_ms(lambda: np.sort(keys)),
    }


def all_bounds(folder: Path) -> dict[str, float]:
    """Everything above; its files are in ``folder``."""
    return {
        "copy_ns": copy_ns(),
        "sort_ns": sort_ns(),
        **packing(),
        **zstd_packing(),
        "crc_gb_s": crc_gb_s(),
        **roaring(),
        **commits(folder),
        **disk(folder),
        "executor_us": executor_us(),
        **locks(),
    }


def main(argv: list[str]) -> None:
    """Measure everything in the given folder."""
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    tell_and_wait(all_bounds(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
