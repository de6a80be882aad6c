"""`tidegate status`: the answer, how it is shown, and whether a Pulsar installation is attached."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.daemons import StartDaemon, assert_one_line, run
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import TIMEOUT_S, ShimClient, entries
from tests.support.waiting import LOOK_AGAIN_S, until
from tidegate.index.log.memory_home import World
from tidegate.index.names import SubscriptionName
from tidegate.plugin.commands.status import attachment
from tidegate.plugin.commands.status_rows import Sort
from tidegate.plugin.commands.status_view import View, render
from tidegate.plugin.errors import DaemonAwayError, ErrorCode, UserError
from tidegate.plugin.local.daemon import without_settings
from tidegate.plugin.telemetry.client import ask_http
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.codec import encode
from tidegate.plugin.wire.control_messages import Query, Reply
from tidegate.plugin.wire.messages import Role

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
NO_PACE = {"paused": False, "rate": None, "spread_ms": None}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def shown(
    answer: dict[str, Any], width: int = 200, *, terminal: bool = True, view: View | None = None
) -> str:
    out = io.StringIO()
    render(answer, Console(file=out, width=width, force_terminal=terminal, color_system=None), view)
    return out.getvalue()


def one_of(name: str, **differing: object) -> dict[str, Any]:
    """A subscription of an answer."""
    plain = {"topic": f"persistent://public/default/{name}", "subscription": "billing", "broker": "broker-1"}
    figures = {"credit": 10, "held": 5, "in_flight": 0, "acknowledged": 0, "staged": 5, "overdue_ms": 0}
    width = {"slice_width_ms": HOUR_MS, "slice_width_auto": True, "slices": [], "slices_omitted": 0}
    rest = {"pace": NO_PACE, "index_log": None, "next_due_ms": 2 * HOUR_MS}
    return {**plain, **figures, **width, **rest, **differing}


def answer_of(*subscriptions: dict[str, Any], brokers: int = 1) -> dict[str, Any]:
    """An answer with these subscriptions, at the time of one hour."""
    totals = {"held": 0, "in_flight": 0, "staged": 1_000, "slices_in_memory": 0, "slices_on_disk": 0}
    sizes = {"memory_bytes": 0, "disk_bytes": 0, "uncommitted_entries": 0}
    names = [f"broker-{number}" for number in range(1, brokers + 1)]
    return {
        "daemon": {"product": "tidegate 1", "uptime_seconds": 9.0, "ready": True, "now_ms": HOUR_MS},
        "brokers": [{"name": name, "product": "pulsar 4.0.8", "streams": 1} for name in names],
        "totals": totals | sizes,
        "subscriptions": list(subscriptions),
        "subscriptions_omitted": 0,
    }


def listed(text: str) -> list[str]:
    """The topics of the table, from the top."""
    return [line.split()[-1].partition(":")[0] for line in text.splitlines() if line.endswith(":billing")]


LOG = {"home": "bookkeeper", "ledger_id": 7, "waiting_bytes": 2_048, "lag_seconds": 90.0, "failure": ""}
WORST = (
    one_of("overdue", overdue_ms=90_000, next_due_ms=HOUR_MS - 90_000),
    one_of("paused", pace=NO_PACE | {"paused": True}, overdue_ms=900_000, next_due_ms=HOUR_MS - 900_000),
    one_of("disconnected", broker=None, credit=None, pace=None),
    one_of("bypassed"),
    one_of("behind", index_log=LOG),
    one_of("sooner", next_due_ms=HOUR_MS + 5_000),
    one_of("later"),
)
BYPASSED = {
    "dispatchers": 1,
    "named": [one_of("bypassed") | {"broker": "broker-1", "delayed": 3, "reason": "another factory"}],
}


def test_the_worst_comes_first() -> None:
    answer = answer_of(*reversed(WORST)) | {"bypassed": BYPASSED}
    text = shown(answer, 100)
    names = ["overdue", "paused", "disconnected", "bypassed", "behind", "sooner", "later"]
    assert listed(text) == names
    assert [line.split("  ")[0] for line in text.splitlines() if line.endswith(":billing")] == [
        "overdue",
        "paused",
        "no broker",
        "bypassed",
        "log behind",
        "ok",
        "ok",
    ]
    assert "  index log in bookkeeper ledger 7, 90.0 s and 2.0 KiB behind" in text
    assert "no broker: nothing of it is read. No consumer has come since" in text
    assert "no broker: " not in shown(answer_of(one_of("a")))
    assert listed(shown(answer, view=View(Sort.NAME))) == sorted(names)
    assert listed(shown(answer, view=View(Sort.DUE)))[:3] == ["paused", "overdue", "sooner"]
    fullest = answer_of(one_of("few", held=1), one_of("many", held=9))
    assert listed(shown(fullest, view=View(Sort.HELD))) == ["many", "few"]


def test_a_line_fits_a_terminal() -> None:
    large = {"held": 123_456_789, "in_flight": 1_000_000, "overdue_ms": 90_000}
    text = shown(answer_of(one_of("orders-of-the-night-partition-17", **large)), 100, terminal=False)
    assert all(len(line) <= 100 for line in text.splitlines()), text
    assert "  orders-of-the-night-partition-17:billing" in text
    assert "staged" not in text, "nobody can tell what 0 held and 1,000 staged mean"


def test_idle_subscriptions_are_one_line() -> None:
    idle = [one_of(f"idle-{number}", held=0, next_due_ms=None, broker=None) for number in range(3)]
    answer = answer_of(*idle, one_of("busy"), one_of("stuck", held=0, index_log=LOG))
    text = shown(answer)
    assert listed(text) == ["stuck", "busy"]
    assert "3 idle subscriptions without a message: --all shows them" in text
    text = shown(answer, view=View(everything=True))
    assert listed(text) == ["stuck", "busy", "idle-0", "idle-1", "idle-2"]
    assert "--all" not in text


def test_a_broker_is_named_where_there_are_several() -> None:
    assert "broker-1  orders:billing" in shown(answer_of(one_of("orders"), brokers=2))
    assert "broker-1  orders" not in shown(answer_of(one_of("orders")))


async def test_a_pattern_chooses_topics(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        for number, name in enumerate(("orders-1", "orders-2", "other")):
            stream = await client.open(f"persistent://public/default/{name}", "billing")
            stream.add(entries(number + 1, now_ms() + HOUR_MS))
            await stream.durable()
        request = {"what": "status", "topic": "orders-*", "subscriptions_max": 1}
        answer = await asyncio.to_thread(ask_socket, socket_path, request)
        assert [one["held"] for one in answer["subscriptions"]] == [2]
        assert answer["subscriptions_omitted"] == 1
        for where in (("--socket", str(socket_path)), ("--http", f"127.0.0.1:{daemon.http_port}")):
            done = await asyncio.to_thread(run, "status", "orders-*", *where, "--sort", "held")
            assert listed(done.stdout) == ["orders-2", "orders-1"], done.stderr
        done = await asyncio.to_thread(run, "status", "no", "--socket", str(socket_path))
        assert_one_line(done, "no subscription 'no:*'", 1)
        with pytest.raises(UserError, match="sort must be held or due"):
            await asyncio.to_thread(ask_socket, socket_path, {"what": "status", "sort": "size"})


async def test_watching_goes_on_until_ctrl_c(start: StartDaemon, socket_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate.plugin.cli", "status", "--socket", str(socket_path)]
    watching = await asyncio.create_subprocess_exec(
        *command, "--watch", "0.1", stdout=PIPE, stderr=PIPE, env=without_settings(os.environ)
    )
    assert watching.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        assert b"no daemon answers on" in await watching.stdout.readline()
        async with start():
            for _ in range(2):
                while b", ready" not in await watching.stdout.readline():
                    pass
            watching.send_signal(signal.SIGINT)
            _, error = await watching.communicate()
    assert (watching.returncode, error) == (130, b"")


def test_watching_has_no_json(socket_path: Path) -> None:
    done = run("status", "--socket", str(socket_path), "--watch", "1", "--json")
    assert_one_line(done, "--watch is for people", 2)


async def test_the_segments_of_a_scalable_topic_are_added_up(start: StartDaemon, socket_path: Path) -> None:
    first_ms = now_ms() + HOUR_MS
    async with start(), await ShimClient.connect(socket_path) as client:
        for number, name in enumerate(("orders/0000-7fff-1", "orders/8000-ffff-2", "other/0000-ffff-0")):
            stream = await client.open(f"segment://public/default/{name}", "billing", credit=0)
            stream.add(entries(10 + number, first_ms + number, ledger_id=5 + number))
            await stream.durable()
        plain = await client.open(TOPIC, "billing", credit=0)
        plain.add(entries(100, first_ms))
        await plain.durable()
        answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
    both, one = answer["scalable"]["topics"]
    assert both == {
        "topic": "topic://public/default/orders",
        "subscription": "billing",
        "segments": 2,
        "held": 21,
        "in_flight": 0,
        "acknowledged": 0,
        "next_due_ms": first_ms,
    }
    assert (one["topic"], one["segments"], one["held"]) == ("topic://public/default/other", 1, 12)
    assert answer["scalable"]["omitted"] == 0
    text = shown(answer, terminal=False)
    assert "topic://public/default/orders:billing  21 held, 0 in flight, in 2 segments, next due in " in text
    answer["scalable"]["omitted"] = 3
    assert "… and 3 scalable topics more" in shown(answer)


async def test_the_answer_and_how_it_is_shown(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "billing", credit=3)
        stream.add(entries(5, now_ms() - 10_000))
        stream.add(entries(1_000, now_ms() + 3 * HOUR_MS, ledger_id=2))
        other = await client.open(f"{TOPIC}-2")
        other.add(entries(1, now_ms() + 20_000))
        await stream.take_due(3)
        await other.close()
        answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
        over_http = await asyncio.to_thread(ask_http, f"127.0.0.1:{daemon.http_port}")
    assert answer["schema"] == 1
    assert answer["daemon"]["ready"]
    assert answer["totals"]["held"] == 1_006
    first, second = answer["subscriptions"]
    assert (first["subscription"], first["held"], first["in_flight"], first["credit"]) == (
        "billing",
        1_005,
        3,
        0,
    )
    assert first["overdue_ms"] >= 10_000
    assert first["near_due"]
    assert (second["broker"], second["held"], second["overdue_ms"]) == (None, 1, 0)
    assert over_http.keys() == answer.keys()
    assert over_http["subscriptions"][0].keys() == first.keys()
    text = shown(answer)
    assert "broker broker-1 (pulsar 4.0.8) connected, 1 stream" in text
    assert "1,006 held" in text
    overdue, in_time = (line for line in text.splitlines() if "  orders" in line)
    assert overdue.startswith("overdue  ")
    assert overdue.split()[2] == "s"
    assert overdue.endswith("  orders:billing")
    assert in_time.split()[:4] == ["no", "broker", "-", "in"]
    assert text.count("\n  its broker takes no more for now") == 1
    assert "DAMAGE" not in text
    assert "its broker takes no more" in shown(answer, terminal=False)
    answer["totals"] |= {"lost_commits": 2, "corrupt_records": 1}
    assert "DAMAGE: 2 commits lost, 1 stored values damaged; their messages" in shown(answer)


async def test_it_says_where_the_index_log_is_and_how_far_behind(
    start: StartDaemon, socket_path: Path
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(entries(5, now_ms() + HOUR_MS))
        await stream.durable()

        async def told(what: str, *more: str) -> str:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    done = await asyncio.to_thread(run, "status", "--socket", str(socket_path), *more)
                    if what in done.stdout:
                        return done.stdout

        await told("1 index logs, up to date")
        await told("  index log in bookkeeper ledger 1, up to date", "--all")
        world.away = True
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        said = await told("behind: nobody is there")
        assert "  index log in bookkeeper ledger 1, " in said
        (one,) = json.loads(await told("pointer", "--json"))["subscriptions"]
        assert one["index_log"]["lag_seconds"] > 0
        assert one["index_log"]["failure"] == "nobody is there"
        assert one["index_log"]["pointer"] == world.pointer
        world.away = False
        await until(lambda: not any(state.failure for state in daemon.engine.log_states()))
        await told(", up to date")
        client.logs = None
        await client.open(TOPIC, epoch=2)
        assert "index log" not in await told("  orders:sub")


async def test_a_store_that_compacts_nothing_any_more_is_told_of(
    start: StartDaemon, socket_path: Path
) -> None:
    """`tests/torture/test_bad_sector.py` has the sectors that stop RocksDB."""
    store = FlakyStore()
    async with start(store=store) as daemon:
        for compacting in (True, False):
            store.compacting = compacting
            answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
            # A recent count is the answer once more where counting took long.
            while answer["totals"]["store_compactions_disabled"] is compacting:
                await asyncio.sleep(LOOK_AGAIN_S)
                answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
            assert answer["totals"]["store_compactions_disabled"] is not compacting
            assert ("DAMAGE: RocksDB cannot read a table" in shown(answer)) is not compacting
            metrics = (await daemon.exposition()).decode()
            assert f"\ntidegate_store_compactions_disabled {float(not compacting)}\n" in metrics
            assert daemon.health.ready, "all else goes on"


async def test_no_name_is_cut_wherever_it_is_shown(start: StartDaemon, socket_path: Path) -> None:
    topic = (
        "persistent://a-tenant-of-some-length/a-namespace-of-some-length/a-topic-of-some-length-partition-7"
    )
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(topic, "a subscription of some length")
        stream.add(entries(3, now_ms() + 3 * HOUR_MS, step_ms=2 * HOUR_MS))
        await stream.durable()
        daemon.engine.catalog.persist(SubscriptionName(topic, "a subscription of some length"))
        answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
        piped = await asyncio.to_thread(run, "status", "--slices", "--socket", str(socket_path), COLUMNS="80")
    sliced = View(slices=True)
    for text in (
        shown(answer, 80, view=sliced),
        shown(answer, 80, terminal=False, view=sliced),
        piped.stdout,
    ):
        (line,) = (line for line in text.splitlines() if topic in line)
        assert line.startswith("ok ")
        assert line.endswith(f"  3          0  {topic}:a subscription of some length")
        slices = [line for line in text.splitlines() if line.startswith("  ")]
        assert slices[0] == "  slices are 1h auto wide, 0 entries in none on disk yet"
        assert [line.split(": ")[1] for line in slices[1:]] == ["1 entries, stored"] * 3
    assert "slices are" not in shown(answer)


async def test_times_that_no_calendar_has(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        for number, deliver_at_ms in enumerate((2**63 - 1, 253_402_300_800_000, now_ms() + 9 * HOUR_MS)):
            stream.add(entries(1, deliver_at_ms, ledger_id=number))
        await stream.durable()
        daemon.engine.catalog.persist(SubscriptionName(TOPIC, "sub"))
        answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
    assert len(answer["subscriptions"][0]["slices"]) == 3
    assert shown(answer, view=View(slices=True)).count("beyond year 9999") == 2


async def test_not_ready_is_shown(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon:
        daemon.health.block("storage", "the store fails: no space left")
        answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
    assert "NOT READY: the store fails: no space left" in shown(answer)
    assert "no broker is connected" in shown(answer)


async def test_the_number_of_subscriptions_is_bounded(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        for number in range(5):
            stream = await client.open(f"{TOPIC}-{number}")
            stream.add(entries(number, now_ms() + HOUR_MS))
            await stream.durable()
        answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status", "subscriptions_max": 2})
    assert [one["held"] for one in answer["subscriptions"]] == [4, 3]
    assert answer["subscriptions_omitted"] == 3
    assert "3 subscriptions more" in shown(answer)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"what": "weather"}, "unknown query 'weather'"),
        ({}, "unknown query None"),
        ({"what": "status", "subscriptions_max": "all"}, "must be a number"),
        ({"what": "status", "subscriptions_max": -1}, "must be a number"),
    ],
)
async def test_a_query_that_makes_no_sense(
    request_: dict[str, object], said: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start():
        with pytest.raises(UserError, match=said):
            await asyncio.to_thread(ask_socket, socket_path, request_)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"status", "not JSON"),
        (b"\xff", "not JSON"),
        (b'["status"]', "not a JSON object"),
        (b'{"what":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "not JSON"),
        (b'{"what":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, "not JSON"),
        (b'{"what":' + b'{"a":' * 900 + b"1" + b"}" * 901, "a value that is neither text nor number"),
        (b'{"what":"' + b"s" * 70_000 + b'"}', "at most 65536 bytes"),
    ],
)
async def test_a_query_that_is_none_ends_its_connection_only(
    body: bytes, said: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        async with await ShimClient.connect(socket_path, role=Role.CONTROL) as client:
            client.send(Query(body), 0, 1)
            error = await client.ended()
            assert error is not None
            assert error.code == ErrorCode.MALFORMED
            assert said in error.message
        await broker.open(TOPIC)


async def test_the_reply_echoes_the_seq_of_the_query(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path, role=Role.CONTROL) as client:
        client.send(Query(b'{"what":"status"}'), 0, 7)
        client.send(Query(b'{"what":"status"}'), 0, 9)
        await client.until(lambda: len(client.received) == 2)
        assert [seq for message, seq in client.received if isinstance(message, Reply)] == [7, 9]


def test_nobody_there(socket_path: Path) -> None:
    with pytest.raises(DaemonAwayError, match="no daemon answers"):
        ask_socket(socket_path, {"what": "status"})
    with pytest.raises(DaemonAwayError, match="no daemon answers"):
        ask_http("http://127.0.0.1:1")


async def test_somebody_else_there(socket_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + encode(Query(b"{}")))
        writer.close()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(babble, str(socket_path)):
        with pytest.raises(UserError, match="does not speak this protocol"):
            await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
    socket_path.unlink()
    async with await asyncio.start_unix_server(silence, str(socket_path)):
        with pytest.raises(DaemonAwayError, match="does not answer within"):
            await asyncio.to_thread(ask_socket, socket_path, {"what": "status"}, 0.1)


def test_whether_an_installation_is_attached(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "lib").mkdir()
    for name in ("broker.conf", "standalone.conf"):
        (tmp_path / "conf" / name).write_text("clusterName=one\nbrokerServicePort=6650\n", "utf-8")
    (tmp_path / "lib" / "org.apache.pulsar-pulsar-broker-4.0.8.jar").write_bytes(b"")
    found = attachment(tmp_path)
    assert (found["state"], found["attached"], found["pulsar_version"]) == ("detached", False, "4.0.8")
    assert [conf["attached"] for conf in found["confs"]] == [False, False]


def test_a_directory_that_is_not_pulsar(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=str(tmp_path)):
        attachment(tmp_path)


async def test_over_http_with_a_token(start: StartDaemon, short_dir: Path) -> None:
    token_file = short_dir / "token"
    token_file.write_text("a long random word\n", "utf-8")
    token_file.chmod(0o600)
    async with start(http="127.0.0.1:0", http_token_file=token_file) as daemon:
        url = f"127.0.0.1:{daemon.http_port}"
        refused = await asyncio.to_thread(run, "status", "--http", url)
        assert_one_line(refused, "needs a token: give --http-token-file", 1)
        given = ("--http-token-file", str(token_file))
        shown = await asyncio.to_thread(run, "status", "--http", url, *given)
        assert (shown.returncode, shown.stderr) == (0, "")
        token_file.chmod(0o644)
        refused = await asyncio.to_thread(run, "status", "--http", url, *given)
        assert_one_line(refused, "can be read by others, run: chmod 600", 2)
