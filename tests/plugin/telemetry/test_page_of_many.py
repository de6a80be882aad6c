"""The page beside 5,000 subscriptions: few nodes, the first due at the top, and every one to be found."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.support.browser import opened, shows
from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tidegate.index import Entries

SUBSCRIPTIONS = 5_000
MINUTE_MS = 60_000
NODES_MAX = 3_000  # with 100 rows of six cells
TOPICS = 50
BROKER = "broker-of-a-long-name.example.org:6650"
ROWS = "[...document.querySelectorAll('#subscriptions button.name')].map(one => one.textContent)"
COUNTED = "document.getElementById('shown').textContent"


def name(number: int) -> tuple[str, str]:
    return f"persistent://public/default/orders-{number % TOPICS:02d}", f"sub-{number:04d}"


async def fill(client: ShimClient, first_ms: int) -> None:
    """A message for each; the higher the number, the earlier it is due."""
    streams = [client.begin_open(*name(number), credit=0) for number in range(SUBSCRIPTIONS)]
    for number, stream in enumerate(streams):
        await stream.opened()
        stream.add(Entries.of([(first_ms + MINUTE_MS * (SUBSCRIPTIONS - number), 5, 0)]))
    for stream in streams:
        await stream.durable()


@pytest.mark.browser
async def test_few_rows_stand_for_many_and_each_subscription_is_found(
    start: StartDaemon, socket_path: Path, tmp_path: Path
) -> None:
    async with (
        start(http="127.0.0.1:0") as daemon,
        await ShimClient.connect(socket_path, name=BROKER) as client,
    ):
        await fill(client, time.time_ns() // 1_000_000)
        address = f"http://127.0.0.1:{daemon.http_port}/"
        async with opened(address, tmp_path / "profile") as page:
            first = [", ".join(name(number)) for number in range(SUBSCRIPTIONS - 1, SUBSCRIPTIONS - 101, -1)]
            await shows(page, ROWS, first)
            assert await page.evaluate(COUNTED) == (
                "100 of 500 shown; 4,500 that are due later are left out: filter for them"
            )
            assert await page.evaluate("document.querySelectorAll('*').length") < NODES_MAX
            tiles = "[...document.querySelectorAll('.tiles dd')]"
            assert await page.evaluate(f"{tiles}.some(one => one.textContent === '{BROKER}')")
            assert await page.evaluate(f"{tiles}.every(one => one.scrollWidth <= one.clientWidth)")
            # The last due of all, which no status of the first ones has.
            await page.evaluate(
                "document.getElementById('filter').value = 'ORDERS-07, Sub-0007', "
                "document.getElementById('filter').dispatchEvent(new Event('input')), null"
            )
            await shows(page, ROWS, [", ".join(name(7))])
            await shows(page, COUNTED, "1 of 1 shown")
            await page.evaluate("document.querySelector('#subscriptions button.name').click()")
            await shows(page, "document.querySelectorAll('#messages tr').length", 1)
            await page.evaluate("document.getElementById('one-close').click()")
            await page.evaluate(
                "document.getElementById('filter').value = '', "
                "document.getElementById('filter').dispatchEvent(new Event('input')), null"
            )
            await shows(page, ROWS, first)
        async with httpx.AsyncClient(trust_env=False) as asked:
            found = await asked.get(f"{address}tidegate/v1/status?sort=held&containing=orders-07")
            assert found.json()["subscriptions_omitted"] == 0
            assert len(found.json()["subscriptions"]) == SUBSCRIPTIONS / TOPICS
            none = await asked.get(f"{address}tidegate/v1/status?containing=nobody")
            assert none.json()["subscriptions"] == []
