"""A dear answer is found once for all who ask."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.support.daemons import StartDaemon
from tidegate.plugin.daemon import report
from tidegate.plugin.telemetry import lately


class Found:
    """Says how often it was asked; answers when it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> tuple[int, float]:
        self.asked += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.asked, 1.0


async def test_who_asks_meanwhile_shares_it_and_who_gives_up_ends_nothing() -> None:
    find = Found()
    shared = lately.Lately(find)
    given_up, first, second = (asyncio.create_task(shared.get()) for _ in range(3))
    await asyncio.sleep(0)
    given_up.cancel()
    find.may_answer.set()
    assert (await first, await second, find.asked) == (1, 1, 1)


async def test_an_error_is_told_to_all_who_wait_and_not_kept() -> None:
    find = Found()
    shared = lately.Lately(find)
    find.error = ValueError("no")
    find.may_answer.set()
    told = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
    assert [str(error) for error in told] == ["no", "no"]
    find.error = None
    assert await shared.get() == 2


@pytest.mark.parametrize(("good_for", "asked"), [(0.0, 2), (1e9, 1)])
async def test_what_is_cheap_is_found_anew(
    monkeypatch: pytest.MonkeyPatch, good_for: float, asked: int
) -> None:
    monkeypatch.setattr(lately, "GOOD_FOR", good_for)
    find = Found()
    find.may_answer.set()
    shared = lately.Lately(find)
    await shared.get()
    await shared.get()
    assert find.asked == asked


async def test_many_who_ask_for_the_status_at_once_have_it_made_once(
    start: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "GOOD_FOR", 1e9)
    monkeypatch.setattr(lately, "GOOD_FOR_MAX_S", 1e9)
    made = 0
    real = report.status

    async def counted(daemon: report.Daemon, subscriptions_max: int) -> bytes:
        nonlocal made
        made += 1
        return await real(daemon, subscriptions_max)

    monkeypatch.setattr(report, "status", counted)
    async with start(http="127.0.0.1:0") as daemon, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{daemon.http_port}/status"
        answers = await asyncio.gather(*(client.get(url) for _ in range(20)))
        assert {answer.json()["daemon"]["ready"] for answer in answers} == {True}
    assert made == 1
