"""Every error that the index raises; each message says what to do. Errors of rocksdict, pcodec, pyroaring and
the operating system become these at the boundary.
"""

from __future__ import annotations


class TidegateIndexError(Exception):
    """Base of every error raised by `tidegate.index`."""


class StorageError(TidegateIndexError):
    """The store failed to read or write (disk full, I/O error). Nothing durable is lost; try again."""


class NewerFormatError(StorageError):
    """The data directory was written by a newer Tidegate than this one."""

    def __init__(self, path: str, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(
            f"the data directory {path} has format {found}, this Tidegate knows formats up to {known}: "
            "install the newer Tidegate, or start with another data directory"
        )


class AlreadyOpenError(StorageError):
    """Another process (or this one) has the data directory open."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the data directory {path} is in use by another Tidegate daemon: stop it first, "
            "or give this one a data directory of its own"
        )


class UnwritableDirectoryError(StorageError):
    """The data directory cannot be created or written; `reason` says what to do."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write to the data directory {path}: {reason}")


class OthersDirectoryError(StorageError):
    """The data directory belongs to another user."""

    def __init__(self, path: str, user_id: int) -> None:
        super().__init__(
            f"the data directory {path} belongs to another user (uid {user_id}): run the daemon as that "
            "user, give the directory to this one (chown), or name a directory below it, which is made then"
        )


class ForeignDirectoryError(StorageError):
    """The directory holds other data than a Tidegate index; `found` names some of it."""

    def __init__(self, path: str, found: str = "") -> None:
        what = f" ({found})" if found else ""
        super().__init__(
            f"{path} holds data that is not a Tidegate index{what}: choose another data directory, "
            "an empty one or one that Tidegate made"
        )


class DamagedDirectoryError(StorageError):
    """The data directory is damaged beyond single values that could be set aside.

    ``reason``: the damage found.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the data directory {path} is damaged ({reason}): stop the daemon, move the directory away and "
            "start it again; the topics are read again, nothing is lost"
        )


class LostCommitsError(StorageError):
    """A database lacks writes that it had synced while in use, or its directory was removed.

    The state in memory builds on the lost writes: the directory must be opened anew.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the store in {path} has lost durable data ({reason}): look at the disk; the daemon begins "
            "anew, and lost data is restored from index logs or read from the topics again"
        )


class BlockAwayError(StorageError):
    """A block has not arrived from the index log yet. It will soon, and nothing is wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is still being read from the index log, try again in a moment")


class CorruptRecordError(TidegateIndexError):
    """A stored value fails its checksum or does not follow `docs/format.md`."""


class CorruptBlockError(CorruptRecordError):
    """A packed block fails its checksum or is missing."""


class UnreadableLogError(TidegateIndexError):
    """An index log cannot be read: it is damaged, gone, or written by a newer Tidegate."""


class InvalidEntriesError(TidegateIndexError):
    """Entries given by the caller are out of range or not of equal length."""


class ClosedError(TidegateIndexError):
    """A catalog, or its journal or store, was used after `close()`."""


class CheckError(TidegateIndexError):
    """An invariant of the index does not hold; the message carries the state."""
