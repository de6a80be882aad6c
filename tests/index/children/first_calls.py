"""Modules of NumPy that the first calls of an index import and a daemon lacks; names on standard output."""

import sys
from pathlib import Path

import tidegate.plugin.daemon.serve  # noqa: F401 all that a daemon imports before it listens
from tidegate.index import (
    Catalog,
    Entries,
    IndexOptions,
    ManualClock,
    PositionSet,
    RocksStore,
    SubscriptionName,
)

NAME = SubscriptionName("persistent://public/default/orders", "billing")
HOUR_MS = 3_600_000


def main(folder: Path) -> None:
    """Everything that a subscription goes through, with positions in two pages and with repeats."""
    before = set(sys.modules)
    rows = [(1 + at * 60_000, (at % 2) << 33 | 7, at // 3) for at in range(60)]
    for _ in range(2):
        catalog = Catalog.open(RocksStore.open(folder, set()), ManualClock(0), IndexOptions())
        index = catalog.subscription(NAME, bytes(16))
        index.add(Entries.of(rows))
        catalog.commit()
        catalog.persist(NAME)
        index.acknowledge(PositionSet.of_entries(index.timeline.pop_due(HOUR_MS, 40)))
        index.mark_delete(7, 2)
        catalog.commit()
        catalog.close()
    print(*sorted(name for name in set(sys.modules) - before if name.startswith("numpy.")))


main(Path(sys.argv[1]))
