"""Ways to merge sorted runs and drop positions not held, each with a library that leaves the interpreter.

A run is an ascending array of 64-bit keys, due time in the upper bits, a position's number in the lower
``NUMBER_BITS``; held positions are an array of bits. Every way takes and returns the same arrays. Without its
library a way does not exist here.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER_BITS = 24
MASK = (1 << NUMBER_BITS) - 1

Keys = NDArray[np.int64]
Bits = NDArray[np.uint8]
Way = Callable[[list[Keys], Bits | None], Keys]


def is_held(keys: Keys, held: Bits) -> NDArray[np.bool_]:
    """A mask of the keys whose position is held."""
    number = keys & MASK
    found: NDArray[np.bool_] = ((held[number >> 3] >> (number & 7).astype(np.uint8)) & 1).astype(np.bool_)
    return found


def numpy_way() -> Way:
    """One array of all, filtered, then sorted by NumPy's vectorised sort."""

    def merge(runs: list[Keys], held: Bits | None) -> Keys:
        keys = np.concatenate(runs)
        if held is not None:
            keys = keys[is_held(keys, held)]
        keys.sort()
        return keys

    return merge


def polars_way() -> Way:
    """The same in Polars, with all its threads; a gather reads the bits."""
    polars = importlib.import_module("polars")

    def merge(runs: list[Keys], held: Bits | None) -> Keys:
        keys = polars.concat([polars.Series("key", run) for run in runs])
        if held is not None:
            number = keys & MASK
            shift = (number & 7).cast(polars.UInt8)
            bits = polars.Series("bits", held).gather(number // 8)
            keys = keys.filter((bits // _power_of_two(polars, shift)) % 2 == 1)
        sorted_keys: Keys = keys.sort().to_numpy()
        return sorted_keys

    return merge


def _power_of_two(polars: Any, shift: Any) -> Any:
    return polars.Series("power", 1 << np.arange(8), dtype=polars.UInt8).gather(shift)


def arrow_way() -> Way:
    """The same with Arrow's compute functions: a filter, the order by indices, a take."""
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")

    def merge(runs: list[Keys], held: Bits | None) -> Keys:
        keys = arrow.concat_arrays([arrow.array(run) for run in runs])
        if held is not None:
            number = compute.bit_wise_and(keys, MASK)
            bits = compute.take(arrow.array(held), compute.shift_right(number, 3))
            shift = compute.cast(compute.bit_wise_and(number, 7), arrow.uint8())
            bit = compute.bit_wise_and(compute.shift_right(bits, shift), arrow.scalar(1, arrow.uint8()))
            keys = compute.filter(keys, compute.equal(bit, 1))
        ordered = compute.take(keys, compute.array_sort_indices(keys))
        return np.asarray(ordered)

    return merge


def numba_way() -> Way:
    """A loop over the heads of the runs, compiled by Numba, without the interpreter lock."""
    compiled = importlib.import_module("numba").njit(nogil=True)(_merge_heads)
    nothing = np.empty(0, np.uint8)

    def merge(runs: list[Keys], held: Bits | None) -> Keys:
        ends = np.cumsum([len(run) for run in runs])
        heads = ends - [len(run) for run in runs]
        merged: Keys = compiled(np.concatenate(runs), heads, ends, nothing if held is None else held)
        return merged

    return merge


def _merge_heads(keys: Keys, heads: Keys, ends: Keys, held: Bits) -> Keys:
    """Take the least head repeatedly; keep it if ``held`` has its bit, or is empty."""
    merged = np.empty_like(keys)
    kept, runs = 0, len(heads)
    for _ in range(len(keys)):
        first = -1
        least = 0
        for run in range(runs):
            if heads[run] < ends[run]:
                key = keys[heads[run]]
                if first < 0 or key < least:
                    first, least = run, key
        heads[first] += 1
        number = least & MASK
        if not len(held) or (held[number >> 3] >> (number & 7)) & 1:
            merged[kept] = least
            kept += 1
    return merged[:kept]


WAYS: dict[str, tuple[str, Callable[[], Way]]] = {
    "numpy": ("numpy", numpy_way),
    "numba": ("numba", numba_way),
    "polars": ("polars", polars_way),
    "arrow": ("pyarrow", arrow_way),
}
"""By name: the package that it needs, and what makes the way."""


def installed() -> list[str]:
    """The ways whose package is installed."""
    return [name for name, (package, _) in WAYS.items() if importlib.util.find_spec(package) is not None]


def runs_and_held(entries: int, runs: int, seed: int = 1) -> tuple[list[Keys], Bits]:
    """``runs`` sorted runs of ``entries`` together, due evenly over an hour, nine of ten positions held."""
    if entries >= 1 << NUMBER_BITS:
        raise ValueError(f"at most {1 << NUMBER_BITS} entries have numbers, not {entries}")
    generator = np.random.default_rng(seed)
    keys = generator.integers(0, 3_600_000, entries) << NUMBER_BITS | np.arange(entries)
    held = np.packbits(generator.random(entries) < 0.9, bitorder="little")
    return [np.sort(part) for part in np.array_split(keys, runs)], held
