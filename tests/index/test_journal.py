"""The commit thread: whatever happens in it, nothing is called durable that was not written and synced."""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests.support.catalogs import spread
from tests.support.flaky_store import FlakyStore
from tidegate.index.clock import ManualClock
from tidegate.index.errors import StorageError, TidegateIndexError
from tidegate.index.journal.journal import Commit, Journal
from tidegate.index.store import Batch, MemoryStore


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


def begun(store: FlakyStore) -> tuple[Journal, Commit]:
    """A journal with one record in a commit that nobody has run yet."""
    journal = Journal(store, ManualClock(0), 1 << 20)
    subscription = journal.new_subscription(1, Batch())
    journal.append_entries(subscription, spread(10, 1_000))
    commit = journal.begin_commit()
    assert commit is not None
    return journal, commit


def test_an_unforeseen_failure_is_a_failure_to_whoever_waits(store: FlakyStore) -> None:
    """As the daemon does when it stops: it waits for the commit thread and asks at once what became of it."""
    journal, commit = begun(store)
    store.failure, store.failing = RuntimeError("a bug"), True

    def run() -> None:
        with contextlib.suppress(RuntimeError):
            commit.run()

    thread = threading.Thread(target=run)
    thread.start()
    with pytest.raises(StorageError, match="a bug"):
        journal.commit()
    thread.join()
    assert journal.durable_token == 0
    store.failing = False
    assert journal.commit() == journal.durable_token == journal.appended_token
    assert store.memory.disk_bytes() > 0


def test_a_thread_that_is_ended_in_the_middle_has_failed(store: FlakyStore) -> None:
    journal, commit = begun(store)
    store.failure, store.failing = RuntimeError(), True

    class Ended(BaseException):
        pass

    store.failure = Ended("the interpreter ends")  # type: ignore[assignment]
    with pytest.raises(Ended):
        commit.run()
    with pytest.raises(StorageError):
        journal.finish_commit(commit)
    assert journal.durable_token == 0


def test_a_commit_that_nobody_has_run_cannot_be_finished(store: FlakyStore) -> None:
    journal, commit = begun(store)
    with pytest.raises(TidegateIndexError, match="not run"):
        journal.finish_commit(commit)
    assert journal.durable_token == 0
    commit.run()
    assert journal.finish_commit(commit) == journal.appended_token


def test_what_was_taken_is_not_touched_by_what_comes_later(store: FlakyStore) -> None:
    """Records, journal and removal may change on the core's thread while the commit is being written."""
    journal = Journal(store, ManualClock(0), 1 << 20)
    subscription = journal.new_subscription(1, Batch())
    journal.append_entries(subscription, spread(10, 1_000))
    commit = journal.begin_commit()
    assert commit is not None
    taken = [(record.sequence, record.entries, len(record.parts)) for record in commit.records]
    journal.append_entries(subscription, spread(10, 1_000, ledger_id=6))
    journal.remove(subscription)
    assert [(record.sequence, record.entries, len(record.parts)) for record in commit.records] == taken
    commit.run()
    journal.finish_commit(commit)
    assert store.memory.disk_bytes() > 0


def test_what_goes_with_a_commit_is_not_there_before_its_records() -> None:
    """An index's identity, and its log: a kill amid the pieces must not leave them alone."""
    pieces: list[tuple[list[bytes], bool]] = []

    class Watched(MemoryStore):
        def write(self, batch: Batch, *, sync: bool) -> None:
            pieces.append(([key for _, key, _ in batch.operations], sync))
            super().write(batch, sync=sync)

    journal = Journal(Watched(), ManualClock(0), 200)
    identity = Batch()
    identity.put(b"identity", b"")
    subscription = journal.new_subscription(1, identity)
    for second in range(20):
        journal.append_entries(subscription, spread(10, 1_000, ledger_id=second))
        journal.cut(subscription)
    commit = journal.begin_commit()
    assert commit is not None
    commit.run()
    assert [sync for _, sync in pieces] == [False] * (len(pieces) - 1) + [True]
    assert len(pieces) > 2
    assert [b"identity" in piece for piece, _ in pieces] == [sync for _, sync in pieces]
