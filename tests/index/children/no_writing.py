"""Writes to a store while its disk refuses, then while it does not.

Arguments: how (`full`, `read-only`, `read-only-start`, `permission`), an empty directory. Runs in its own
mounts. Output: the store's words, then `goes on` if it does.
"""

from __future__ import annotations

import contextlib
import mmap  # noqa: F401 needed later, when the interpreter may not be readable any more
import os
import subprocess
import sys
from pathlib import Path

from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.format.keys import SliceId
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.store import Batch

NOBODY = 65_534
MEMTABLE_BYTES = 16 << 20
PIECE_BYTES = 1 << 19


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def write(store: RocksStore, number: int) -> None:
    batch = Batch()
    batch.put(keys.block_key(1, SliceId(1_000, number), 1), os.urandom(PIECE_BYTES))
    store.write(batch, sync=True)


def write_until_refused(store: RocksStore) -> int:
    """Enough to need a new file; the number of what was refused."""
    for number in range(20 * MEMTABLE_BYTES // PIECE_BYTES):
        try:
            write(store, number)
        except StorageError as error:
            print(type(error).__name__, error, flush=True)
            break
    else:
        raise SystemExit("nothing was refused")
    with contextlib.suppress(StorageError):
        write(store, number)  # opens the database again, which needs to write, too
        raise SystemExit("it was not refused again")
    read_all(store, number)
    return number


def read_all(store: RocksStore, count: int) -> None:
    """Everything written is there, also while the store takes nothing more."""
    assert all(store.get(keys.block_key(1, SliceId(1_000, at), 1)) for at in range(count))


how, above = sys.argv[1], Path(sys.argv[2])
path = above / "data"
ballast = above / "ballast"
if how == "full":
    mount("-t", "tmpfs", "-o", "size=72m", "none", str(above))
    # More than all else has room for: reopening asks for as much as the WALs take.
    ballast.write_bytes(bytes(40 << 20))
if how == "permission":
    os.chown(above, NOBODY, NOBODY)
    if os.geteuid() == 0:  # root may write everywhere
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
store = RocksStore.open(path)
write(store, 0)
if how == "full":
    refused = write_until_refused(store)
    ballast.unlink()
elif how == "permission":
    path.chmod(0o500)
    refused = write_until_refused(store)
    path.chmod(0o700)
else:
    if how == "read-only-start":
        store.close()
    mount("--bind", str(path), str(path))
    mount("-o", "remount,bind,ro", str(path))
    if how == "read-only-start":
        try:
            RocksStore.open(path)
        except StorageError as error:
            print(type(error).__name__, error, flush=True)
        raise SystemExit
    refused = write_until_refused(store)
    subprocess.run(["umount", str(path)], check=True)
write(store, refused)
read_all(store, refused + 1)
store.close()
print("goes on", flush=True)
