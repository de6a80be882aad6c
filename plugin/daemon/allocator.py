"""Limits for the allocator and the garbage collector of the process (docs/decisions/collect-rarely.md).

Once the process has freed one large array, glibc raises the size above which it maps memory separately; later
arrays of megabytes come from the heap, and a heap with holes does not shrink.
"""

from __future__ import annotations

import ctypes
import gc
import platform

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MMAP_BYTES = 1 << 20
_TRIM_BYTES = 4 << 20
_ARENAS = 2
_COLLECT_AFTER = (10_000, 20, 100)


def give_back_memory() -> None:
    """Set the limits for this process, unless its C library is not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for name, value in (
        (_M_MMAP_THRESHOLD, _MMAP_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    ):
        mallopt(name, value)


def collect_nothing_yet() -> None:
    """Collect nothing during a start: its objects stay, and walking them takes a fourth of the time."""
    gc.disable()


def collect_rarely() -> None:
    """Exempt all live objects from collection, and hardly ever walk any but young ones.

    A full collection stops every thread while it walks all objects, up to a second with a thousand
    subscriptions. Imports and the index leave next to no cycles, so rare collection loses nothing.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()
