"""Group commit: many frames, one synced write.

Invariants:

- a frame is reported durable only after a commit of the journal has returned a token that covers it;
- commits begin at least ``interval_s`` apart, sooner once ``entries_max`` have come together; so a change
  waits no longer, and not at all after an interval without one;
- a failed commit is retried until it succeeds, and nothing is reported durable meanwhile; ``DurableNews``
  gets every failure and every success.

The next commit gathers during the present one's write, so a slow disk makes groups larger, not more numerous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from tidegate.index import Clock, Commit, Journal, StorageError
from tidegate.plugin.daemon.durable_news import DurableNews
from tidegate.plugin.daemon.stream import Stream

NS_PER_SECOND = 1_000_000_000


class Committer:
    """Gathers changes and commits them together.

    ``executor`` writes, so that a slow disk delays no due entries; None writes on the loop.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        news: DurableNews,
        *,
        executor: Executor | None,
        interval_s: float,
        entries_max: int,
        retry_s: float,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._loop = loop
        self._news = news
        self._executor = executor
        self._interval_s = interval_s
        self._entries_max = entries_max
        self._retry_s = retry_s
        self._waiting: dict[Stream, None] = {}
        self._told_after: list[tuple[int, Callable[[StorageError | None], None]]] = []
        self._entries = 0
        self._wanted = False
        self._writing: Commit | None = None
        self._begin_ns = 0
        self._committing: dict[Stream, None] = {}
        self._entries_committing = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._retrying = False

    @property
    def uncommitted_entries(self) -> int:
        """Entries and positions of the changes in no commit yet."""
        return self._entries + self._entries_committing

    def note_change(self, stream: Stream, entries: int) -> None:
        """``stream`` has made a change worth ``entries`` journal entries."""
        self._waiting[stream] = None
        full_before = self._entries >= self._entries_max
        self._entries += entries
        if self._timer is None or (self._entries >= self._entries_max and not full_before):
            self.wake()

    def after(self, token: int, tell: Callable[[StorageError | None], None]) -> None:
        """Call ``tell`` once everything up to ``token`` is durable, or with a failed commit's error.

        A failed change is still committed once the store works again.
        """
        if token <= self._journal.durable_token:
            self._loop.call_soon(self._tell_one, tell, None)
            return
        self._told_after.append((token, tell))
        self.wake()

    def wake(self) -> None:
        """Commit an appended change with the next group."""
        self._wanted = True
        if self._writing is not None or self._retrying:
            return
        if self._entries >= self._entries_max:
            self._cancel()
            self._timer = self._loop.call_soon(self._begin)
        elif self._timer is None:
            since_s = (self._clock.monotonic_ns() - self._begin_ns) / NS_PER_SECOND
            self._timer = self._loop.call_later(max(0.0, self._interval_s - since_s), self._begin)

    def forget(self, stream: Stream) -> None:
        """Forget an ended stream; its changes are still committed, but not reported to it."""
        self._waiting.pop(stream, None)
        self._committing.pop(stream, None)

    def commit_now(self) -> None:
        """Commit everything on the calling thread, also a commit on its way; then stop committing."""
        self._cancel()
        self._take()
        self._writing = None
        try:
            durable_token = self._journal.commit()
        except StorageError as error:
            self._failed(error)
            self._cancel()
        else:
            self._succeeded(durable_token)

    def _begin(self) -> None:
        self._timer = None
        self._take()
        commit = self._journal.begin_commit()
        if commit is None:  # frames that changed nothing, after everything else was durable
            self._succeeded(self._journal.durable_token)
            if self._wanted:
                self.wake()
            return
        self._writing = commit
        if self._executor is None:
            commit.run()
            self._finish(commit)
        else:
            running = self._loop.run_in_executor(self._executor, commit.run)
            running.add_done_callback(lambda _: self._finish(commit))

    def _take(self) -> None:
        self._begin_ns = self._clock.monotonic_ns()
        self._wanted = False
        self._committing |= self._waiting
        self._waiting = {}
        self._entries_committing += self._entries
        self._entries = 0

    def _finish(self, commit: Commit) -> None:
        if self._writing is not commit:
            return  # `commit_now` has waited for it
        self._writing = None
        try:
            durable_token = self._journal.finish_commit(commit)
        except StorageError as error:
            self._failed(error)
            return
        self._succeeded(durable_token)
        if self._wanted:
            self.wake()

    def _failed(self, error: StorageError) -> None:
        self._retrying = True
        self._timer = self._loop.call_later(self._retry_s, self._begin)
        self._news.on_commit_failed([*self._committing, *self._waiting], error)
        self._tell(None, error)

    def _succeeded(self, durable_token: int) -> None:
        self._retrying = False
        self._entries_committing = 0
        committed, self._committing = self._committing, {}
        self._news.on_committed((self._clock.monotonic_ns() - self._begin_ns) / NS_PER_SECOND)
        for stream in committed:
            durability = stream.session.durable(durable_token)
            if durability is not None:
                self._news.on_durable(stream, durability)
            if stream.session.undurable_frames:  # came during the commit's write
                self._waiting[stream] = None
                self._wanted = True
        self._tell(durable_token, None)

    def _tell(self, durable_token: int | None, error: StorageError | None) -> None:
        """Tell the callers that wait for ``durable_token`` or less, or all of them if it is None."""
        asked, self._told_after = self._told_after, []
        for token, tell in asked:
            if durable_token is None or token <= durable_token:
                self._tell_one(tell, error)
            else:
                self._told_after.append((token, tell))
                self._wanted = True

    def _tell_one(self, tell: Callable[[StorageError | None], None], error: StorageError | None) -> None:
        try:
            tell(error)
        except Exception as bug:
            # The other callers wait for the news, too.
            self._loop.call_exception_handler(
                {"message": "who waited for a commit failed when told", "exception": bug}
            )

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
