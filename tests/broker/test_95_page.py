"""The page on the broker's web port, and what it shows: the broker's daemon, not one topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import opened, shows
from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.servlets import Web, problem
from tests.support.waiting import wait_until
from tidegate.plugin.telemetry.page import page

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]


@pytest.fixture
def web(cluster: Cluster) -> Iterator[Web]:
    made = Web(cluster.broker.admin_url)
    yield made
    made.close()


@pytest.fixture
def filled(lane: Lane, web: Web) -> Lane:
    """A topic with five messages that wait."""
    lane.subscribe(Inbox())
    lane.send_in(*[MINUTES_10_MS + 1_000 * at for at in range(5)])

    def waiting() -> bool:
        answer = web.get(lane.topic, "tide")
        return answer.is_success and answer.json()["entries"] == 5

    wait_until(waiting, "5 are in the index")
    return lane


def test_the_page_comes_with_its_policy(web: Web) -> None:
    answer = web.client.get("/tidegate/")
    body, headers = page()
    assert (answer.status_code, answer.content) == (200, body)
    for name in ("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"):
        assert sorted(answer.headers[name].split("; ")) == sorted(headers[name].split("; "))
    assert answer.headers["Content-Type"].lower().replace(" ", "") == "text/html;charset=utf-8"
    assert web.client.head("/tidegate/").status_code == 200
    assert web.client.get("/tidegate", follow_redirects=True).content == body
    assert problem(web.client.post("/tidegate/", json={}))[0] == 405
    assert problem(web.client.get("/tidegate/page.html"))[0] == 404


def test_the_tide_of_all_and_of_a_namespace(cluster: Cluster, filled: Lane, web: Web) -> None:
    of_topic = web.client.get(f"/tidegate/v1/tide?topic=persistent://{filled.topic}&subscription=sub").json()
    assert (of_topic["entries"], of_topic["subscriptions"]) == (5, 1)
    everything = web.client.get("/tidegate/v1/tide").json()
    namespace = web.client.get("/tidegate/v1/persistent/public/default/tide?step_ms=3600000").json()
    assert everything["entries"] >= namespace["entries"] >= 5
    assert everything["subscriptions"] >= namespace["subscriptions"] >= 1
    assert problem(web.client.get("/tidegate/v1/persistent/public/nothing/tide"))[0] == 404
    assert problem(web.client.get("/tidegate/v1/persistent/public/default/tide?step_ms=0"))[0] == 400
    assert problem(web.client.post("/tidegate/v1/tide", json={}))[0] == 405
    at = ("--admin-url", cluster.broker.admin_url, "--json")
    told = run("tide", "public/default/*", *at)
    assert json.loads(told.stdout)["subscriptions"] == namespace["subscriptions"], told.stderr
    assert json.loads(run("tide", *at).stdout)["entries"] >= 5


def test_the_status_is_there_and_the_description(filled: Lane, web: Web) -> None:
    found = web.client.get("/tidegate/v1/status?sort=due").json()
    assert f"persistent://{filled.topic}" in {one["topic"] for one in found["subscriptions"]}
    assert web.client.get("/tidegate/v1/openapi.json").json()["openapi"] == "3.1.0"


@pytest.mark.browser
def test_messages_are_seen_and_cancelled_in_a_browser(
    cluster: Cluster, filled: Lane, web: Web, tmp_path: Path
) -> None:
    name = f"persistent://{filled.topic}, sub"

    async def look() -> None:
        async with opened(f"{cluster.broker.admin_url}/tidegate/", tmp_path / "profile") as page:
            open_one = f"[...document.querySelectorAll('.name')].find(one => one.textContent === {name!r})"
            await shows(page, f"!!{open_one}")
            assert await page.evaluate("document.getElementById('failed').hidden")
            await page.evaluate(f"{open_one}.click()")
            await shows(page, "document.querySelectorAll('#messages tr').length === 5")
            await page.evaluate("document.querySelector('#messages input').click()")
            await page.evaluate("document.querySelector('[data-change=cancel]').click()")
            await shows(page, "document.getElementById('confirm').open")
            assert "Cancel 1 message?" in await page.evaluate(
                "document.getElementById('confirm-title').textContent"
            )
            await page.evaluate("document.getElementById('confirm-yes').click()")
            await shows(page, "document.getElementById('outcome').textContent.startsWith('1 done')")

    asyncio.run(look())
    assert web.get(filled.topic, "tide").json()["entries"] == 4
