"""`from tidegate import Client, AsyncClient`, and the commands, against a running daemon: socket and HTTP."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

from tests.support.daemons import assert_one_line, run
from tests.support.deciding import TOPIC, waiting
from tests.support.served import TOKEN, Served
from tidegate import AsyncClient, Client, DaemonAwayError, RefusedError, TidegateError, UnknownNameError
from tidegate.plugin.errors import ConfigError

T = TypeVar("T")
Reach = dict[str, Any]


@pytest.fixture(params=["http", "socket"])
def reach(request: pytest.FixtureRequest, served: Served, socket_path: Path) -> Reach:
    """The arguments of a client."""
    if request.param == "http":
        return {"url": served.url, "token": TOKEN}
    return {"socket": socket_path}


async def blocking(work: Callable[[Client], T], **reach: Any) -> T:
    def run() -> T:
        with Client(**reach) as client:
            return work(client)

    return await asyncio.to_thread(run)


async def test_a_client_that_blocks(served: Served, reach: Reach) -> None:
    await waiting(served.broker, TOPIC, 2)

    def work(client: Client) -> None:
        assert client.tide("orders", "sub").entries == client.tide().entries == 100
        assert client.tide("ord*").subscriptions == 1
        messages = list(client.waiting("orders", "sub", page=30))
        assert [one.message_id for one in messages] == [f"5:{n}" for n in range(100)]
        assert list(client.waiting("orders", "sub", due="..10m")) == []
        first = client.show("orders", "sub", "5:0")
        assert (first.state, first.deliver_at_ms) == ("waiting", messages[0].deliver_at_ms)
        assert client.show(TOPIC, "sub", "5:2").state == "handed_out"
        would = client.cancel("orders", "sub", ids=["5:1", "5:2", "9:9"], dry_run=True)
        done = client.cancel("orders", "sub", ids=(one for one in ("5:1", "5:2", "9:9")))
        for one in (would, done):
            assert (one.done, one.too_late, one.unknown, one.all_done) == (1, 1, 1, False)
            assert one.ids == {"too_late": ["5:2"], "unknown": ["9:9"]}
        assert (would.dry_run, done.dry_run) == (True, False)
        assert client.cancel("orders", "sub", ids=["5:1"]).acknowledged == 1
        assert client.cancel("orders", "sub", due="..10m").all_done
        everything = client.cancel("orders", "sub", all=True)
        assert (everything.done, everything.too_late) == (98, 1)

    await blocking(work, **reach)


async def test_a_client_of_an_event_loop(served: Served, reach: Reach) -> None:
    await waiting(served.broker, TOPIC, 2)
    async with AsyncClient(**reach) as client:
        assert (await client.tide("orders", "sub", span_ms=7_200_000, step_ms=60_000)).entries == 100
        assert [one.message_id async for one in client.waiting("orders", "sub", page=30)] == [
            f"5:{n}" for n in range(100)
        ]
        assert (await client.show("orders", "sub", "5:2")).state == "handed_out"
        done = await asyncio.gather(*(client.cancel("orders", "sub", ids=[f"5:{n}"]) for n in range(10)))
        assert sum(one.done for one in done) == 9
        assert (await client.cancel("orders", "sub", all=True)).done == 90


def test_help_shows_a_call_with_its_result() -> None:
    for client in (Client, AsyncClient):
        cancel = inspect.signature(client.cancel)
        chosen = ["ids", "due", "all", "key", "property", "dry_run"]
        assert list(cancel.parameters) == ["self", "topic", "subscription", *chosen]
        assert cancel.return_annotation == "Changed"
        assert "before they are delivered" in (client.cancel.__doc__ or "")


async def test_the_pace_of_release(served: Served, reach: Reach) -> None:
    await waiting(served.broker)

    def work(client: Client) -> None:
        paused = client.pause("orders", "sub")
        assert (paused.done, paused.held_back) == (True, 7)
        assert [(one.topic, one.paused) for one in paused.subscriptions] == [(TOPIC, True)]
        assert client.pace("orders", "sub", rate=5).subscriptions[0].rate == 5
        assert client.pace("orders", "sub").subscriptions[0].rate == 5
        assert client.pace("orders", "sub", spread_ms=1_000).subscriptions[0].spread_ms == 1_000
        with pytest.raises(TidegateError, match="give one of rate and spread_ms"):
            client.pace("orders", "sub", rate=5, spread_ms=1_000)
        assert client.resume("orders", "sub").subscriptions[0].paused is False

    await blocking(work, **reach)
    async with AsyncClient(**reach) as client:
        assert (await client.pause("orders", "sub")).subscriptions[0].paused is True
        assert (await client.pace("orders", "sub", rate=5)).subscriptions[0].rate == 5
        assert (await client.resume("orders", "sub")).held_back == 0


async def test_mistakes_are_errors_of_one_line(served: Served, reach: Reach) -> None:
    await waiting(served.broker)

    def work(client: Client) -> None:
        for wrong, kind in (
            (lambda: client.show("none", "sub", "1:1"), TidegateError),
            (lambda: client.show("orders", "sub", "five"), TidegateError),
            (lambda: client.cancel("orders", "sub"), TidegateError),
            (lambda: client.cancel("orders", "sub", ids=[]), TidegateError),
            (lambda: client.cancel("orders", "sub", ids=["5:1", "five"]), TidegateError),
            (lambda: client.cancel("orders", "sub", due="2h..1h"), TidegateError),
            (lambda: list(client.waiting("orders", "sub", due="1760000000..")), TidegateError),
        ):
            with pytest.raises(kind) as caught:
                wrong()
            assert len(str(caught.value).splitlines()) == 1
        assert client.tide("orders").entries == 100

    await blocking(work, **reach)


async def test_a_name_that_the_daemon_does_not_know_is_told_apart_on_the_socket_too(
    served: Served, socket_path: Path
) -> None:
    await waiting(served.broker)
    for ask in (
        lambda client: client.show("none", "sub", "1:1"),
        lambda client: client.cancel("orders", "none", ids=["1:1"]),
        lambda client: client.pace("none", "sub"),
    ):
        with pytest.raises(UnknownNameError, match="the daemon refuses: no subscription"):
            await blocking(ask, socket=socket_path)


async def test_errors_of_http_say_which(served: Served) -> None:
    await waiting(served.broker)
    with pytest.raises(UnknownNameError, match="no subscription"):
        await blocking(lambda client: client.show("none", "sub", "1:1"), url=served.url, token=TOKEN)
    with pytest.raises(RefusedError, match="takes no such token") as caught:
        await blocking(lambda client: client.tide(), url=served.url, token=f"not {TOKEN}")
    assert caught.value.status == 401
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "reach",
    [
        {"url": "http://h", "socket": "s"},
        {"token": "t"},
        {"url": "http://h", "token": ""},
        {"url": "http://h", "token": "two\nlines"},
        {"url": "http://h", "tls_ca_file": Path("/none")},
    ],
)
def test_a_client_that_cannot_be(reach: Reach) -> None:
    with pytest.raises(ConfigError):
        Client(**reach)


async def test_nobody_answers(short_dir: Path) -> None:
    with pytest.raises(DaemonAwayError):
        await blocking(lambda client: client.tide(), socket=short_dir / "none")
    with pytest.raises(DaemonAwayError, match="no answer from"):
        await blocking(lambda client: client.tide(), url="http://127.0.0.1:1")


@asynccontextmanager
async def server(handle: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """Some other HTTP server."""

    async def answer(request: web.Request) -> web.StreamResponse:
        found: web.StreamResponse = await handle(request)
        return found

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_the_owner_of_the_topic_is_followed_with_token_and_body(served: Served) -> None:
    await waiting(served.broker, TOPIC, 2)
    seen: list[tuple[str, str]] = []

    async def other_broker(request: web.Request) -> web.Response:
        seen.append((request.method, request.raw_path))
        return web.Response(status=307, headers={"Location": f"{served.url}{request.raw_path}"})

    async with server(other_broker) as url:
        done = await blocking(
            lambda client: client.cancel("orders", "sub", ids=["5:1"]), url=url, token=TOKEN
        )
        assert done.done == 1
        async with AsyncClient(url, token=TOKEN) as client:
            page = [one async for one in client.waiting("orders", "sub", due="10m..2h")]
            assert len(page) == 99
    assert [method for method, _ in seen] == ["POST", "GET"]
    assert re.search(r"\?due=\d{13}\.\.\d{13}&", seen[1][1])


async def test_a_broker_without_a_daemon_is_a_daemon_away() -> None:
    async def refuse(request: web.Request) -> web.Response:
        document = {"detail": "no daemon answers", "reason": "no-daemon"}
        if request.method == "GET":
            del document["reason"]
        return web.json_response(document, status=503)

    async with server(refuse) as url:
        async with AsyncClient(url) as client:
            with pytest.raises(DaemonAwayError, match="no daemon answers"):
                await client.cancel("orders", "sub", ids=["5:1"])
        there = ("orders", "sub", "--admin-url", url)
        with pytest.raises(DaemonAwayError, match="no daemon answers"):
            await blocking(lambda client: client.pause("orders", "sub"), url=url)
        assert_one_line(await cli("pause", *there), "no daemon answers", 3)
        assert_one_line(await cli("tide", *there), "no daemon answers", 1)


async def test_an_endless_answer_is_not_read(served: Served) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(1_000):
            await answer.write(b" " * 1_000_000)
        return answer

    async with server(endless) as url:
        with pytest.raises(TidegateError, match="more than 16777216 bytes"):
            await blocking(lambda client: client.tide(), url=url)


async def cli(*arguments: str, **environment: str) -> Any:
    return await asyncio.to_thread(lambda: run(*arguments, **environment))


async def test_the_commands_over_http(served: Served, token_file: Path, short_dir: Path) -> None:
    await waiting(served.broker, TOPIC, 2)
    there = ("--admin-url", served.url, "--token-file", str(token_file))
    tide = await cli("tide", "orders", "sub", *there, "--json")
    assert json.loads(tide.stdout)["entries"] == 100
    listed = await cli("list", "orders", "sub", "--due", "10m..2h", "--limit", "3", *there, "--json")
    assert [json.loads(line)["message_id"] for line in listed.stdout.splitlines()] == ["5:0", "5:1", "5:2"]
    assert listed.stderr.startswith("more: --after ")
    after = listed.stderr.split()[-1]
    more = await cli("list", "orders", "sub", "--after", after, *there, "--json")
    assert len(more.stdout.splitlines()) == 97
    shown = await cli("show", "orders", "sub", "5:2", *there, "--json")
    assert json.loads(shown.stdout)["state"] == "handed_out"
    environment = {"TIDEGATE_ADMIN_URL": served.url, "TIDEGATE_TOKEN": TOKEN}
    one = await cli("cancel", "orders", "sub", "--id", "5:1", "--json", **environment)
    assert (one.returncode, json.loads(one.stdout)["done"]) == (0, 1), one.stderr
    paced = await cli("pace", "orders", "sub", "--rate", "500", *there, "--json")
    assert json.loads(paced.stdout)["subscriptions"][0]["rate"] == 500
    assert "PAUSED" in (await cli("pause", "orders", "sub", *there)).stdout
    assert (await cli("resume", "orders", "sub", *there)).returncode == 0
    all_of_them = await cli("cancel", "orders", "sub", "--all", *there, "--json")
    assert all_of_them.returncode == 1
    assert json.loads(all_of_them.stdout) == {
        "dry_run": False,
        "done": 98,
        "too_late": 1,
        "acknowledged": 0,
        "unknown": 0,
        "undecided": 0,
        "ids": {"too_late": ["5:2"]},
    }


async def test_what_is_wrong_with_a_command_over_http(
    served: Served, token_file: Path, short_dir: Path
) -> None:
    await waiting(served.broker)
    here = ("show", "orders", "sub", "5:1", "--admin-url", served.url)
    assert_one_line(await cli(*here), "takes no such token: a token is needed", 1)
    both = await cli(*here, "--token", TOKEN, "--token-file", str(token_file))
    assert_one_line(both, "give --token or --token-file, or their variables, not both", 2)
    token_file.chmod(0o644)
    assert_one_line(await cli(*here, "--token-file", str(token_file)), "--token-file: ", 2)
    away = await cli("tide", "--admin-url", "http://127.0.0.1:1")
    assert_one_line(away, "no answer from http://127.0.0.1:1", 3)
    assert_one_line(await cli("tide", "--admin-url", "http://u:secret@h"), "give a token instead", 2)
