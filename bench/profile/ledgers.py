"""The cost of an index with positions in many ledgers, beside one with few: by operation.

``python -m bench.profile.ledgers [LEDGERS]`` prints CPU milliseconds with 1,000 ledgers, with ``LEDGERS``
(100,000 unless told), and the ratio: near 1 for an operation proportional to its change; opening and counting
read everything. The best of ``REPEATS``, since the machine has other work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.harness.index_driver import INCARNATION, subscription_name
from bench.harness.made_entries import START_MS
from tidegate.index import Catalog, Entries, ManualClock, PositionSet
from tidegate.plugin.daemon.serve import index_options, open_store
from tidegate.plugin.daemon.settings import Settings

FEW, MANY = 1_000, 100_000
EACH = 10  # entries of a ledger
STEP = 7  # from one ledger id to the next: other topics have those between
REPEATS = 5
SMALL, LARGE = 100, 5_000
DAY_MS = 86_400_000
NAME = subscription_name()


class World:
    """An index of so many ledgers, all but the last few entries of each in slices and unacknowledged."""

    def __init__(self, folder: Path, ledgers: int) -> None:
        self.ledgers = ledgers
        self.clock = ManualClock(START_MS)
        self._settings = Settings(data=folder)
        self._next_entry = EACH
        self.catalog = self._opened()
        self.index = self.catalog.subscription(NAME, INCARNATION)
        for first in range(0, ledgers, FEW):
            self.index.add(self.entries(range(first, first + FEW), range(EACH)))
            self.catalog.commit()
        self.catalog.persist(NAME)

    def _opened(self) -> Catalog:
        return Catalog.open(open_store(self._settings), self.clock, index_options(self._settings), None)

    def entries(self, ledgers: range, entry_ids: range) -> Entries:
        """The entries with these numbers of these ledgers, due within a week from tomorrow on."""
        ledger_id = np.repeat(np.arange(ledgers.start, ledgers.stop) * STEP + 1, len(entry_ids))
        entry_id = np.tile(np.arange(entry_ids.start, entry_ids.stop), len(ledgers))
        due = START_MS + DAY_MS + (ledger_id * 7_919 + entry_id * 104_729) % (7 * DAY_MS)
        return Entries(due, ledger_id, entry_id)

    def last(self, count: int) -> Entries:
        """New entries in the last ten ledgers, as a broker reads them."""
        first, self._next_entry = self._next_entry, self._next_entry + count // 10
        return self.entries(range(self.ledgers - 10, self.ledgers), range(first, self._next_entry))

    def reopen(self) -> None:
        """Close and recover it."""
        self.catalog.close()
        self.catalog = self._opened()
        found = self.catalog.get(NAME)
        if found is None:
            raise RuntimeError("the subscription is gone")
        self.index = found

    def end(self) -> None:
        """Close it."""
        self.catalog.close()


def _add(world: World, count: int) -> Callable[[], None]:
    entries = world.last(count)
    return lambda: _use(world.index.add(entries))


def _acknowledge(world: World, count: int) -> Callable[[], None]:
    entries = world.last(count)
    world.index.add(entries)
    positions = PositionSet.of_entries(entries)
    return lambda: _use(world.index.acknowledge(positions))


def _mark_delete(world: World) -> Callable[[], None]:
    ledger_id, entry_id = world.index.state.mark
    following = (1, 0) if ledger_id < 0 else (ledger_id, entry_id + 1)
    return lambda: _use(world.index.mark_delete(*following))


def _persist(world: World) -> Callable[[], None]:
    world.index.add(world.last(SMALL))
    world.catalog.commit()
    return lambda: world.catalog.persist(NAME)


def _change_after_begin(world: World) -> Callable[[], None]:
    """The first changes after a persist has begun, to data that its snapshot shares."""
    world.index.add(world.last(SMALL))
    entries = world.last(SMALL)

    def change() -> None:
        job = world.index.upkeep.begin_persist(world.clock.now_ms())
        world.index.add(entries)
        world.index.acknowledge(PositionSet.of_entries(entries))
        _use(job)

    return change


def _undo_begin(world: World) -> None:
    world.index.upkeep.abandon_persist()
    world.catalog.persist(NAME)


def _opened_by_a_broker(world: World) -> Callable[[], None]:
    entries = world.last(SMALL)

    def answer() -> None:
        _use(world.index.state.held_among(PositionSet.of_entries(entries)))
        world.index.rewind(PositionSet())

    return answer


def _use(_: object) -> None:
    """Ignore the result."""


def measured(world: World) -> dict[str, float]:
    """Milliseconds by operation."""
    actions: dict[str, Callable[[], Callable[[], None]]] = {
        f"add {SMALL}": lambda: _add(world, SMALL),
        f"add {LARGE:,}": lambda: _add(world, LARGE),
        f"acknowledge {SMALL}": lambda: _acknowledge(world, SMALL),
        f"acknowledge {LARGE:,}": lambda: _acknowledge(world, LARGE),
        "move mark-delete by one": lambda: _mark_delete(world),
        "rewind with nothing in flight": lambda: _opened_by_a_broker(world),
        f"persist {SMALL} entries": lambda: _persist(world),
        "begin a persist, then change": lambda: _change_after_begin(world),
        "stats": lambda: lambda: _use(world.index.stats()),
        "stats again": lambda: lambda: _use(world.index.stats()),
        "open": lambda: world.reopen,
    }
    found = {}
    for name, prepare in actions.items():
        times = []
        for _ in range(REPEATS):
            act = prepare()
            began_s = time.thread_time()
            act()
            times.append((time.thread_time() - began_s) * 1e3)
            if name.startswith("begin"):
                _undo_begin(world)
            world.catalog.commit()
        found[name] = min(times)
    return found


def main(argv: list[str]) -> None:
    """Measure both, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile.ledgers",
        description="what an index of many ledgers costs, beside one of 1,000",
        epilog="example: python -m bench.profile.ledgers 20000",
    )
    parser.add_argument(
        "ledgers", nargs="?", type=int, default=MANY, help=f"{FEW:,} or more; {MANY:,} by default"
    )
    wanted = parser.parse_args(argv).ledgers
    if wanted < FEW:
        parser.error(f"{wanted:,} ledgers are not many: name {FEW:,} or more")
    columns = []
    for ledgers in (FEW, wanted):
        with tempfile.TemporaryDirectory(prefix="tidegate-ledgers-") as folder:
            world = World(Path(folder), ledgers)
            try:
                columns.append((ledgers, measured(world)))
            finally:
                world.end()
    (few, small), (many, large) = columns
    print(f"{'CPU ms, the best of ' + str(REPEATS):32}{few:>10,}{many:>10,}  ledgers")
    for name in small:
        print(f"{name:32}{small[name]:10.3f}{large[name]:10.3f}{large[name] / small[name]:8.1f} x")


if __name__ == "__main__":
    main(sys.argv[1:])
