"""The page of ``GET /`` in a real browser, beside a daemon whose broker the test plays."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from pathlib import Path

import httpx
import pytest

from tests.support.browser import Page, opened, shows
from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tidegate.index import Entries, PositionSet
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.wire.messages import Cancel, Cancelled

TOPIC = "persistent://public/default/orders"
HOSTILE = 'persistent://public/default/<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
TOKEN = "a-token-of-a-test-that-is-long-enough"  # noqa: S105 of this test only
HOUR_MS = 3_600_000
NOTHING = PositionSet()


def url(daemon: RunningDaemon) -> str:
    return f"http://127.0.0.1:{daemon.http_port}/"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


async def fill(client: ShimClient, topic: str, subscription: str, count: int, due_in_ms: int) -> None:
    stream = await client.open(topic, subscription, credit=0)
    at_ms = time.time_ns() // 1_000_000 + due_in_ms
    stream.add(Entries.of((at_ms + 1_000 * entry_id, 5, entry_id) for entry_id in range(count)))
    await stream.durable()

    def cancel(request: Cancel) -> Cancelled:
        return Cancelled(request.positions, NOTHING, NOTHING)

    stream.on_cancel = cancel


async def press(page: Page, key: str) -> None:
    """A key as a person presses it."""
    text = {"Enter": "\r", " ": " "}.get(key, "")
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        await page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)


async def test_only_the_pages_own_script_and_style_may_run(start: StartDaemon, token_file: Path) -> None:
    async with (
        start(http="127.0.0.1:0", http_token_file=token_file) as daemon,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        answer = await client.get(url(daemon))
        assert answer.status_code == 200, "the page has no data, so it needs no token"
        assert (await client.get(f"{url(daemon)}status")).status_code == 401
        policy = dict(one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        for name in ("script", "style"):
            (text,) = re.findall(rf"<{name}>(.*?)</{name}>", answer.text, re.DOTALL)
            sha256 = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert policy[f"{name}-src"] == f"'sha256-{sha256}'"
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=", answer.text
        )
        assert not re.search(r"(?:src|href)=\"(?!#)", answer.text), "no outside assets"


@pytest.mark.browser
async def test_names_are_text_and_the_first_to_hurt_is_at_the_top(
    start: StartDaemon, socket_path: Path, tmp_path: Path
) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, TOPIC, "billing", 300, HOUR_MS)
        await fill(client, HOSTILE, "sub", 3, -HOUR_MS)
        async with opened(url(daemon), tmp_path / "profile") as page:
            rows = (
                "[...document.querySelectorAll('#subscriptions td:first-child')].map(one => one.textContent)"
            )
            await shows(page, rows, [f"{HOSTILE}, sub", f"{TOPIC}, billing"])
            assert await page.evaluate("window.hacked === undefined")
            assert await page.evaluate("document.querySelectorAll('main img').length") == 0
            assert await page.evaluate("document.getElementById('ready').textContent") == "ready"
            assert await page.evaluate("document.getElementById('failed').hidden")
            words = await page.evaluate("document.getElementById('tide-words').textContent")
            assert words.startswith("303 messages: 3 overdue, 300 from now"), words
            assert await page.evaluate("document.querySelectorAll('#tide rect.overdue').length") == 1
            # Nothing sticks out at the side, on a desk and on a telephone.
            for width in (1200, 360):
                await set_width(page, width)
                assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def set_width(page: Page, width: int) -> None:
    """Show the page on a screen of that width."""
    await page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )


@pytest.mark.browser
async def test_a_message_is_cancelled_by_keyboard_after_a_question_that_names_the_count(
    start: StartDaemon, socket_path: Path, token_file: Path, tmp_path: Path
) -> None:
    async with (
        start(http="127.0.0.1:0", http_token_file=token_file) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        await fill(client, TOPIC, "billing", 300, HOUR_MS)
        async with opened(url(daemon), tmp_path / "profile") as page:
            await shows(
                page, "document.getElementById('failed').textContent.startsWith('A token is needed')", True
            )
            await page.evaluate("document.getElementById('token-open').focus()")
            await press(page, "Enter")
            await shows(page, "document.activeElement.id", "token")
            await page.call("Input.insertText", text=TOKEN)
            await press(page, "Enter")
            await shows(page, "document.querySelectorAll('#subscriptions button.name').length", 1)
            await page.evaluate("document.querySelector('#subscriptions button.name').focus()")
            await page.evaluate("window.row = document.activeElement, null")
            await shows(page, "window.row.isConnected", False)
            assert await page.evaluate("document.activeElement.className") == "name", "a look keeps the focus"
            await press(page, "Enter")
            await shows(page, "document.querySelectorAll('#messages input').length", 200)
            assert await page.evaluate("document.activeElement.id") == "one-title"
            await set_width(page, 360)
            table = "document.getElementById('messages').closest('.scroll')"
            assert await page.evaluate(f"{table}.scrollWidth - {table}.clientWidth") == 0, "times are whole"
            for number in (0, 2):
                await page.evaluate(f"document.querySelectorAll('#messages input')[{number}].focus()")
                await press(page, " ")
            await page.evaluate("document.querySelector('[data-change=cancel]').focus()")
            await press(page, "Enter")
            await shows(page, "document.getElementById('confirm-title').textContent", "Cancel 2 messages?")
            assert len(PositionSet.of(held(daemon))) == 300, "nothing is done before the answer"
            await page.evaluate("document.getElementById('confirm-yes').focus()")
            await press(page, "Enter")
            await shows(page, "document.getElementById('outcome').textContent", "2 done")
            assert held(daemon)[:2] == [(5, 1), (5, 3)]
            await page.evaluate("document.querySelector('#messages input').click()")
            await page.evaluate("document.querySelector('[data-change=reschedule]').focus()")
            await press(page, "Enter")
            await shows(page, "document.activeElement.id", "by")
            await press(page, "Enter")
            await shows(page, "document.getElementById('confirm').open", False)
            assert await page.evaluate("document.getElementById('confirm').returnValue") == "yes"
            await page.evaluate("document.getElementById('one-close').click()")
            await shows(page, "document.getElementById('one').hidden", True)


def held(daemon: RunningDaemon) -> list[tuple[int, int]]:
    (index,) = daemon.engine.catalog
    return list(index.state.held)


@pytest.mark.browser
async def test_rows_of_one_subscription_never_stand_under_another(
    start: StartDaemon, socket_path: Path, tmp_path: Path
) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        for subscription, count in (("billing", 3), ("shipping", 5)):
            await fill(client, TOPIC, subscription, count, HOUR_MS)
        async with opened(url(daemon), tmp_path / "profile") as page:
            await shows(page, "document.querySelectorAll('#subscriptions button.name').length", 2)
            # The first list answers after the second.
            await page.evaluate(
                "const ask = fetch; window.fetch = async (path, options) => {"
                " if (path.includes('/billing/waiting')) await new Promise(go => { window.go = go; });"
                " return ask(path, options); }, null"
            )
            name = "[...document.querySelectorAll('#subscriptions button.name')].find(one => one.textContent"
            await page.evaluate(f"{name}.endsWith('billing')).click()")
            await shows(page, "typeof window.go", "function")
            await page.evaluate("document.getElementById('one-close').click()")
            await page.evaluate(f"{name}.endsWith('shipping')).click()")
            await shows(page, "document.querySelectorAll('#messages input').length", 5)
            await page.evaluate("window.go()")
            await asyncio.sleep(0.5)
            assert await page.evaluate("document.querySelectorAll('#messages input').length") == 5
            await page.evaluate("document.getElementById('one-close').click()")
            assert await page.evaluate("document.querySelectorAll('#messages input').length") == 0
