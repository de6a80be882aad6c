"""A disk that refuses the store's writes: the store's words are true and say what to do, and then it goes on.

The full and the read-only disk are real, in a mount namespace: root or a user namespace is needed.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.index.errors import DamagedDirectoryError
from tidegate.index.rocks import faults

CHILD = Path(__file__).parent / "children" / "no_writing.py"
SECONDS_MAX = 120.0


@pytest.fixture
def above() -> Iterator[Path]:
    """A directory that other users can get to, as pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="tg-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def lines_of(how: str, above: Path) -> list[str]:
    """The child's words, in mounts of its own."""
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    done = subprocess.run(
        [*unshare, sys.executable, str(CHILD), how, str(above)],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"needs root or user namespaces (unshare, mount): {done.stdout}{done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("how", "said", "then"),
    [
        ("full", "is full", "free some space, then it goes on"),
        ("read-only", "is read-only", "see in the kernel's log why, mount it writable, then it goes on"),
        ("permission", "this process may no longer write", "give it back to its user, then it goes on"),
    ],
)
def test_a_disk_that_lets_nothing_be_written_and_then_does(
    how: str, said: str, then: str, above: Path
) -> None:
    refused, goes_on = lines_of(how, above)
    assert refused.startswith("StorageError ")
    assert said in refused and then in refused
    assert str(above / "data") in refused
    assert goes_on == "goes on"


def test_a_read_only_file_system_at_the_start(above: Path) -> None:
    (refused,) = lines_of("read-only-start", above)
    assert refused.startswith("UnwritableDirectoryError ")
    assert "read-only: mount it writable, or choose another directory" in refused


@pytest.mark.parametrize(
    ("number", "running", "opening"),
    [
        (errno.ENOSPC, "is full: free some space", "disk is full"),
        (errno.EDQUOT, "quota", "quota is used up"),
        (errno.EROFS, "is read-only", "is read-only"),
        (errno.EACCES, "may no longer write", "give this user write permission"),
        (errno.EPERM, "does not permit", "owner and attributes"),
        (errno.EFBIG, "ulimit -f", "cannot"),
        (errno.EMFILE, "ulimit -n", "cannot"),
        (errno.EIO, "fails: see the kernel's log", "cannot"),
        (errno.ENOTCONN, "fails", "cannot"),
    ],
)
def test_each_in_its_own_words_whoever_says_it(number: int, running: str, opening: str) -> None:
    path = Path("/var/lib/tidegate")
    by_system = OSError(number, os.strerror(number))
    by_rocksdb = Exception(f"IO error: While appending to file: {path}/000004.log: {os.strerror(number)}")
    by_rocksdb_again = Exception(f"{by_rocksdb}; IO error: Writer has previous error.")
    for error in (by_system, by_rocksdb, by_rocksdb_again):
        assert running in str(faults.running(path, error))
        assert opening in str(faults.opening(path, error))
        assert str(path) in str(faults.running(path, error))


def test_a_name_that_reads_like_a_reason_is_none() -> None:
    error = Exception("IO error: While open a file: /No space left on device/000004.log: Input/output error")
    said = str(faults.running(Path("/d"), error))
    assert "is full" not in said
    assert "fails" in said


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN])
def test_a_bad_sector_is_damage_to_what_is_read(number: int) -> None:
    what = "IO error: While pread offset 17670 len 4427: /d/000010.sst"
    assert faults.is_unreadable(Exception(f"{what}: {os.strerror(number)}"))
    assert not faults.is_unreadable(Exception(f"{what}: {os.strerror(errno.EMFILE)}"))


def test_damage_is_neither() -> None:
    error = Exception("Corruption: block checksum mismatch")
    assert isinstance(faults.running(Path("/d"), error), DamagedDirectoryError)
    assert isinstance(faults.opening(Path("/d"), error), DamagedDirectoryError)
