"""The contract of all homes of index logs: memory, a folder, S3 through fsspec.

BookKeeper, through a real broker, is in ``tests/cluster``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.index_logs import run
from tests.support.object_homes import IDENTITY, ObjectWorld
from tests.support.s3_server import S3Server
from tidegate.index.log.home import (
    ENTRY_BYTES_MAX,
    AwayError,
    FencedError,
    Home,
    HomeError,
    NoLedgerError,
    RefusedError,
    StalePointerError,
)
from tidegate.index.log.memory_home import World
from tidegate.index.log.object_home import ABOUT, folder_of
from tidegate.index.log.objects import FolderObjects


class AnyWorld(Protocol):
    """Shared by owners of one subscription."""

    pointer: str

    def new_owner(self) -> Home: ...


@pytest.fixture(params=["memory", "file", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyWorld:
    kind = request.param
    if kind == "memory":
        return World()
    if kind == "file":
        return ObjectWorld(f"file://{tmp_path}")
    server: S3Server = request.getfixturevalue("s3")
    server.be_used(monkeypatch)
    return ObjectWorld(f"s3://{server.bucket}/{tmp_path.name}")


def test_entries_come_back_in_their_order(world: AnyWorld) -> None:
    async def check() -> None:
        home = world.new_owner()
        ledger_id = await home.create()
        entries = [bytes([number]) * number for number in range(1, 50)]
        numbers = await asyncio.gather(*(home.append(ledger_id, entry) for entry in entries[:8]))
        assert list(numbers) == list(range(8)), "in the order of the calls"
        for number, entry in enumerate(entries[8:], 8):
            assert await home.append(ledger_id, entry) == number
        reader = world.new_owner()
        assert await reader.open(ledger_id) == len(entries) - 1
        found: list[bytes] = []
        while len(found) < len(entries):
            found += await reader.read(ledger_id, len(found), len(entries) - 1)
        assert found == entries
        assert await reader.read(ledger_id, 7, 8) == entries[7:9]

    run(check())


def test_an_answer_has_bounded_size_and_one_entry_at_least(world: AnyWorld) -> None:
    async def check() -> None:
        home = world.new_owner()
        ledger_id = await home.create()
        for _ in range(4):
            await home.append(ledger_id, bytes(600_000))
        with pytest.raises(RefusedError):
            await home.append(ledger_id, bytes(ENTRY_BYTES_MAX + 1))
        await home.open(ledger_id)
        assert len(await home.read(ledger_id, 0, 3)) == 1
        with pytest.raises(NoLedgerError):
            await home.read(ledger_id, 4, 4)

    run(check())


def test_an_empty_ledger_is_there_and_one_that_was_never_made_is_not(world: AnyWorld) -> None:
    async def check() -> None:
        home = world.new_owner()
        ledger_id = await home.create()
        assert await home.open(ledger_id) == -1
        with pytest.raises(NoLedgerError):
            await home.open(ledger_id + 1)

    run(check())


def test_a_home_in_memory_goes_away_after_so_many_appends() -> None:
    """By it tests and the simulator break off a log at any place."""

    async def check() -> None:
        world = World(appends_left=2)
        home = world.new_owner()
        ledger_id = await home.create()
        for number in range(2):
            assert await home.append(ledger_id, b"kept") == number
        with pytest.raises(AwayError):
            await home.append(ledger_id, b"late")
        world.away, world.appends_left = False, None
        assert await world.new_owner().open(ledger_id) == 1

    run(check())


def test_opening_fences_the_writer(world: AnyWorld) -> None:
    async def check() -> None:
        former = world.new_owner()
        ledger_id = await former.create()
        await former.append(ledger_id, b"kept")
        owner = world.new_owner()
        assert await owner.open(ledger_id) == 0
        assert owner.fences
        with pytest.raises(FencedError):
            await former.append(ledger_id, b"late")
        with pytest.raises(HomeError):
            await former.append(ledger_id, b"after an append has failed")
        assert await owner.read(ledger_id, 0, 0) == [b"kept"]
        with pytest.raises((FencedError, NoLedgerError)):
            await owner.append(ledger_id, b"not its own")
        again = world.new_owner()
        assert await again.open(ledger_id) == 0, "opened twice, it has what it had"

    run(check())


def test_where_an_object_may_be_made_twice_opening_fences_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence that the former owner overwrites would be one in name only."""
    monkeypatch.setattr(FolderObjects, "creates_once", False)

    async def check() -> None:
        world = ObjectWorld(f"file://{tmp_path}")
        former = world.new_owner()
        ledger_id = await former.create()
        await former.append(ledger_id, b"kept")
        before = sorted(tmp_path.rglob("*"))
        owner = world.new_owner()
        assert await owner.open(ledger_id) == 0
        assert not owner.fences
        assert sorted(tmp_path.rglob("*")) == before
        assert await owner.read(ledger_id, 0, 0) == [b"kept"]

    run(check())


def test_what_an_append_has_returned_for_is_there_whenever_it_is_opened(world: AnyWorld) -> None:
    """Many appends are under way when somebody else opens the ledger."""

    async def check() -> None:
        former = world.new_owner()
        ledger_id = await former.create()
        kept: list[int] = []

        async def append(number: int) -> None:
            kept.append(await former.append(ledger_id, f"entry {number}".encode()))

        appends = [asyncio.create_task(append(number)) for number in range(30)]
        while len(kept) < 5:
            await asyncio.sleep(0)
        owner = world.new_owner()
        last = await owner.open(ledger_id)
        before = len(kept)
        failures = await asyncio.gather(*appends, return_exceptions=True)
        assert len(kept) - 1 <= last, "none returned after the ledger was opened that is not there"
        assert before - 1 <= last
        assert kept == list(range(len(kept))), "without a gap"
        assert all(isinstance(one, HomeError) for one in failures if one is not None)
        found: list[bytes] = []
        while len(found) <= last:
            found += await owner.read(ledger_id, len(found), last)
        assert found == [f"entry {number}".encode() for number in range(last + 1)]

    run(check())


def test_the_pointer_is_changed_by_its_owner_from_what_it_is(world: AnyWorld) -> None:
    async def check() -> None:
        former = world.new_owner()
        await former.point("", "one")
        with pytest.raises(StalePointerError):
            await former.point("", "two")
        owner = world.new_owner()
        with pytest.raises(StalePointerError):
            await former.point("one", "two")
        await owner.point("one", "three")
        assert world.pointer == "three"

    run(check())


def test_deleting_twice_is_as_deleting_once(world: AnyWorld) -> None:
    async def check() -> None:
        home = world.new_owner()
        ledger_id = await home.create()
        await home.append(ledger_id, b"gone")
        await home.delete(ledger_id)
        await home.delete(ledger_id)
        with pytest.raises(NoLedgerError):
            await home.open(ledger_id)

    run(check())


def test_ids_of_ledgers_are_numbers_that_a_pointer_can_have(world: AnyWorld) -> None:
    async def check() -> None:
        ids = {await world.new_owner().create() for _ in range(5)}
        assert len(ids) == 5
        assert all(0 < ledger_id < 1 << 63 for ledger_id in ids)

    run(check())


def test_appends_that_are_given_up_together_are_given_up_and_nothing_else(tmp_path: Path) -> None:
    """One waits for the other, and must not take its end from it."""

    async def check() -> None:
        home = ObjectWorld(f"file://{tmp_path}").new_owner()
        ledger_id = await home.create()
        asked: list[asyncio.Event] = []

        async def offload(work: Callable[[], object]) -> object:
            asked.append(asyncio.Event())
            await asked[-1].wait()
            return work()

        home._offload = offload
        first = asyncio.create_task(home.append(ledger_id, b"one"))
        second = asyncio.create_task(home.append(ledger_id, b"two"))
        while len(asked) < 2:
            await asyncio.sleep(0)
        asked[1].set()
        while len(home._under_way) > 1:
            await asyncio.sleep(0)
        for _ in range(10):  # it is there, and waits for the first one
            await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        ends = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 2

    run(check())


def test_what_is_under_way_when_all_is_deleted_leaves_nothing(tmp_path: Path) -> None:
    """The append is cancelled; the thread that makes the object is not."""
    stands, may_go_on = threading.Event(), threading.Event()

    class SlowFolder(FolderObjects):
        def create(self, name: str, data: bytes) -> None:
            if data == b"slow":
                stands.set()
                may_go_on.wait()
            super().create(name, data)

    async def check() -> None:
        world = ObjectWorld(f"file://{tmp_path}")
        world.objects = lambda: SlowFolder(tmp_path)
        home = world.new_owner()
        ledger_id = await home.create()
        appending = asyncio.create_task(home.append(ledger_id, b"slow"))
        await asyncio.to_thread(stands.wait)
        appending.cancel()
        deleting = asyncio.create_task(home.delete_all())
        await asyncio.wait([appending])
        may_go_on.set()
        await deleting
        assert not list(tmp_path.iterdir())
        with pytest.raises(RefusedError):
            await home.create()

    run(check())


@pytest.mark.parametrize("world", ["file", "s3"], indirect=True)
def test_a_ledger_that_is_being_deleted_is_gone_and_one_that_misses_an_entry_is_damaged(
    world: ObjectWorld,
) -> None:
    async def check() -> None:
        home, reader = world.new_owner(), world.new_owner()
        deleted, damaged = await home.create(), await home.create()
        for ledger_id in (deleted, damaged):
            for number in range(3):
                await home.append(ledger_id, b"entry %d" % number)
            await reader.open(ledger_id)
        store, folder = world.objects(), folder_of(IDENTITY)
        # A deletion so far, and the fence of an opener that had listed the ledger before.
        store.remove(f"{folder}/{deleted:020}/{ABOUT}")
        for ledger_id in (deleted, damaged):
            store.remove(f"{folder}/{ledger_id:020}/0000000001")
        store.create(f"{folder}/{deleted:020}/0000000004", b"fenced")
        with pytest.raises(NoLedgerError, match=f"there is no ledger {deleted}"):
            await reader.read(deleted, 0, 2)
        with pytest.raises(NoLedgerError, match=f"there is no ledger {deleted}"):
            await world.new_owner().open(deleted)
        with pytest.raises(NoLedgerError, match=f"ledger {damaged} has no entry 1"):
            await reader.read(damaged, 0, 2)
        assert await world.new_owner().open(damaged) == 0
        await home.delete(deleted)
        assert store.sizes(f"{folder}/{deleted:020}") == {}

    run(check())


def test_a_deletion_takes_the_head_first(tmp_path: Path) -> None:
    """A reader that lists the objects in between would take the rest for the whole."""
    left: list[list[str]] = []

    class Watched(FolderObjects):
        def remove(self, name: str) -> None:
            super().remove(name)
            left.append(sorted(path.name for path in tmp_path.glob("*/*/*")))

    async def check() -> None:
        world = ObjectWorld(f"file://{tmp_path}")
        world.objects = lambda: Watched(tmp_path)
        home = world.new_owner()
        for delete in (home.delete, lambda _: home.delete_all()):
            left.clear()
            ledger_id = await home.create()
            await home.append(ledger_id, b"entry")
            await delete(ledger_id)
            assert left == [["0000000000"], []]

    run(check())
