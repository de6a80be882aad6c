"""5,000 subscriptions: the series of a scrape are bounded, and the worst have some."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import INCARNATION, ShimClient, entries
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import SystemClock
from tidegate.index.names import SubscriptionName
from tidegate.index.store import MemoryStore

COUNT, SHOWN = 5_000, 100
OF_A_SUBSCRIPTION = 10
HOUR_MS = 3_600_000
PAGE = Path(__file__).parents[3] / "docs/metrics.md"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def name(number: int) -> SubscriptionName:
    return SubscriptionName(f"persistent://public/default/order-{number:06}", "billing")


@pytest.fixture
def store() -> MemoryStore:
    """Subscription n holds n % 7 + 1 entries."""
    store = MemoryStore()
    catalog = Catalog.open(store, SystemClock())
    for number in range(COUNT):
        catalog.subscription(name(number), INCARNATION).add(entries(number % 7 + 1, now_ms() + HOUR_MS))
    catalog.commit()
    catalog.close()
    return store.reopen()


async def test_the_series_are_bounded_and_the_worst_come_first(
    start: StartDaemon, socket_path: Path, store: MemoryStore
) -> None:
    async with (
        start(store=store, metrics_subscriptions=SHOWN, prefetch_ms=0) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        late, later, _ = [await client.open(name(one).topic, "billing", credit=1) for one in (17, 23, 35)]
        for stream, since_ms in ((late, 20_000), (later, 90_000)):
            stream.add(entries(3, now_ms() - since_ms, ledger_id=2))
            await stream.durable()
            await stream.take_due(1)
        text = (await daemon.exposition()).decode()
    assert f"tidegate_subscriptions {COUNT}.0" in text
    shown = re.findall(
        r'^tidegate_subscription_overdue_seconds\{.*topic="[^"]*-(\d+)"\} (\S+)', text, re.MULTILINE
    )
    assert [int(number) for number, _ in shown[:3]] == [23, 17, 35]
    assert float(shown[0][1]) > 80 > float(shown[1][1]) > 10
    assert {float(overdue) for _, overdue in shown[2:]} == {0}
    assert {int(number) % 7 for number, _ in shown[3:]} == {6}, "then the fullest"
    assert "tidegate_subscriptions_overdue 2.0" in text
    longest = re.search(r"^tidegate_overdue_seconds (\S+)$", text, re.MULTILINE)
    assert longest is not None
    assert float(longest[1]) > 80

    series = [line for line in text.splitlines() if not line.startswith("#")]
    of_subscriptions = [line for line in series if line.startswith("tidegate_subscription_")]
    assert len(of_subscriptions) == SHOWN * OF_A_SUBSCRIPTION
    for count, said in re.findall(
        r"^\| `metrics_subscriptions=(\d+)` \| ([\d,]+) \|", PAGE.read_text("utf-8"), re.MULTILINE
    ):
        expected = len(series) + (int(count) - SHOWN) * OF_A_SUBSCRIPTION
        assert int(said.replace(",", "")) == pytest.approx(expected, rel=0.02, abs=20), (count, expected)
    said_bytes = re.search(
        rf"^\| `metrics_subscriptions={SHOWN}` \| \S+ \| ([\d,]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert said_bytes is not None
    assert int(said_bytes[1].replace(",", "")) == pytest.approx(len(text), rel=0.05), len(text)
