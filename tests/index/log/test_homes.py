"""What every home of index logs keeps to."""

from __future__ import annotations

import pytest

from tests.support.index_logs import run
from tidegate.index.log.home import FencedError, NoLedgerError, StalePointerError
from tidegate.index.log.memory_home import World


def test_entries_come_back_in_their_order() -> None:
    async def check() -> None:
        home = World().new_owner()
        ledger_id = await home.create()
        entries = [bytes([number]) * number for number in range(1, 50)]
        for number, entry in enumerate(entries):
            assert await home.append(ledger_id, entry) == number
        assert await home.open(ledger_id) == len(entries) - 1
        found: list[bytes] = []
        while len(found) < len(entries):
            found += await home.read(ledger_id, len(found), len(entries) - 1)
        assert found == entries

    run(check())


def test_an_answer_has_bounded_size_and_one_entry_at_least() -> None:
    async def check() -> None:
        home = World().new_owner()
        ledger_id = await home.create()
        for _ in range(4):
            await home.append(ledger_id, bytes(600_000))
        await home.open(ledger_id)
        assert len(await home.read(ledger_id, 0, 3)) == 1
        with pytest.raises(NoLedgerError):
            await home.read(ledger_id, 4, 4)

    run(check())


def test_opening_fences_the_writer() -> None:
    async def check() -> None:
        world = World()
        former = world.new_owner()
        ledger_id = await former.create()
        await former.append(ledger_id, b"kept")
        owner = world.new_owner()
        assert await owner.open(ledger_id) == 0
        with pytest.raises(FencedError):
            await former.append(ledger_id, b"late")
        assert await owner.read(ledger_id, 0, 0) == [b"kept"]
        with pytest.raises(FencedError):
            await owner.append(ledger_id, b"not its own")

    run(check())


def test_the_pointer_is_changed_by_its_owner_from_what_it_is() -> None:
    async def check() -> None:
        world = World()
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


def test_deleting_twice_is_as_deleting_once() -> None:
    async def check() -> None:
        home = World().new_owner()
        ledger_id = await home.create()
        await home.delete(ledger_id)
        await home.delete(ledger_id)
        with pytest.raises(NoLedgerError):
            await home.open(ledger_id)

    run(check())
