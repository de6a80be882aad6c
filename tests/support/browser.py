"""A page in a real browser: Chromium without a window, asked through its DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_START_TIMEOUT_S = 120.0
_SHOWS_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 60.0
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "--window-size=1200,900",
)  # fmt: skip


def find_browser() -> str | None:
    """Chromium's command, None where there is none."""
    return next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)


class Page:
    """A page that has been loaded."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last_id = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._last_id += 1
        await self._socket.send_json({"id": self._last_id, "method": method, "params": parameters})
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == self._last_id:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, None if it has none."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


async def shows(page: Page, script: str, wanted: Any = True) -> None:
    """Wait until the script's value is the wanted one."""
    found = None
    try:
        async with asyncio.timeout(_SHOWS_TIMEOUT_S):
            while found != wanted:
                found = await page.evaluate(script)
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"{script} is {found!r}, not {wanted!r}")


@contextlib.asynccontextmanager
async def opened(where: Path | str, profile: Path) -> AsyncIterator[Page]:
    """The file or address in a browser of its own, which ends with the block."""
    address = where.as_uri() if isinstance(where, Path) else where
    browser = find_browser()
    assert browser is not None, "no Chromium: install the package chromium"
    command = [browser, *_FLAGS, f"--user-data-dir={profile}", address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with aiohttp.ClientSession() as session:
            url = await _page_url(session, profile / "DevToolsActivePort")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                page = Page(socket)
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    # Before it there is an empty page, complete as well, which goes while it is asked.
                    wanted, found = [address, "complete"], None
                    while found != wanted:
                        await asyncio.sleep(0.05)
                        with contextlib.suppress(AssertionError):
                            found = await page.evaluate("[location.href, document.readyState]")
                yield page
    finally:
        process.terminate()
        process.wait()


async def _page_url(session: aiohttp.ClientSession, port_file: Path) -> str:
    """Where the page listens; Chromium writes its port into a file."""
    async with asyncio.timeout(_START_TIMEOUT_S):
        while True:
            with contextlib.suppress(OSError, IndexError, aiohttp.ClientError):
                port = port_file.read_text().split()[0]
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    for target in await answer.json():
                        if target["type"] == "page":
                            return str(target["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
