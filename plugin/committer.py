"""Group commit: many frames, one synced write.

Invariants:

- a frame is reported durable only after a commit of the catalog has returned a token that covers it;
- a change waits at most ``interval_s`` for its commit, less when ``entries_max`` have come together;
- a failed commit is tried again until it succeeds, with nothing reported durable meanwhile; the owner hears
  of every failure and of the first success after it.

It runs on the event loop: RocksDB's binding holds the interpreter's lock while it writes, so a thread of its
own gains nothing, and a synced write of a few hundred kilobytes takes less than a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from tidegate.index.catalog import Catalog
from tidegate.index.clock import Clock
from tidegate.index.errors import StorageError
from tidegate.plugin.tracker import Durability, Tracker

NS_PER_SECOND = 1_000_000_000


class Committed(Protocol):
    """A stream with frames that wait for a commit."""

    @property
    def tracker(self) -> Tracker:
        """Its logic."""
        ...


StreamT = TypeVar("StreamT", bound=Committed)
HeardT_contra = TypeVar("HeardT_contra", bound=Committed, contravariant=True)


class CommitListener(Protocol[HeardT_contra]):
    """Who is told of commits."""

    def on_durable(self, stream: HeardT_contra, durability: Durability) -> None:
        """Frames of ``stream`` are on disk."""
        ...

    def on_committed(self, seconds: float) -> None:
        """A commit took so long and succeeded."""
        ...

    def on_commit_failed(self, waiting: Iterable[HeardT_contra], error: StorageError) -> None:
        """A commit failed; the frames of ``waiting`` are not durable."""
        ...


class Committer(Generic[StreamT]):
    """Gathers changes and commits them together."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        listener: CommitListener[StreamT],
        *,
        interval_s: float,
        entries_max: int,
        retry_s: float,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._loop = loop
        self._listener = listener
        self._interval_s = interval_s
        self._entries_max = entries_max
        self._retry_s = retry_s
        self._waiting: dict[StreamT, None] = {}
        self._entries = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._retrying = False

    @property
    def uncommitted_entries(self) -> int:
        """Entries and positions of the changes that no commit has covered yet."""
        return self._entries

    def note(self, stream: StreamT, entries: int) -> None:
        """``stream`` has made a change worth ``entries`` journal entries."""
        self._waiting[stream] = None
        self._entries += entries
        self.wake()
        if self._entries >= self._entries_max > self._entries - entries and not self._retrying:
            self._cancel()
            self._timer = self._loop.call_soon(self.commit)

    def wake(self) -> None:
        """Something was appended that nobody waits for: commit it with the next group."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval_s, self.commit)

    def forget(self, stream: StreamT) -> None:
        """``stream`` has ended; its changes are committed all the same, but it need not be told."""
        self._waiting.pop(stream, None)

    def commit(self) -> bool:
        """Commit now; returns whether it succeeded. A failure is tried again later by itself."""
        self._cancel()
        begin_ns = self._clock.monotonic_ns()
        try:
            durable_token = self._catalog.commit()
        except StorageError as error:
            self._retrying = True
            self._timer = self._loop.call_later(self._retry_s, self.commit)
            self._listener.on_commit_failed(list(self._waiting), error)
            return False
        self._retrying = False
        self._entries = 0
        waiting, self._waiting = self._waiting, {}
        self._listener.on_committed((self._clock.monotonic_ns() - begin_ns) / NS_PER_SECOND)
        for stream in waiting:
            durability = stream.tracker.durable(durable_token)
            if durability is not None:
                self._listener.on_durable(stream, durability)
        return True

    def stop(self) -> None:
        """No more commits by the timer."""
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
