"""An index goes from daemon to daemon by a log at a URL; the broker keeps only the pointer."""

from __future__ import annotations

import asyncio
import contextlib
import io
import stat
import time
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon, run
from tests.support.s3_server import S3Server
from tests.support.shim_client import GENERATION, ShimClient, entries
from tests.support.waiting import until
from tidegate.index.log.memory_home import World
from tidegate.index.log.object_home import ObjectHome
from tidegate.index.log.pointer import Pointer
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.wire.messages import Close

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
RESTORED = "the index was restored from its log"
UNREADABLE = "the index log cannot be read"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of index logs alone."""
    made = tmp_path / "logs"
    made.mkdir()
    return made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def up_to_date(daemon: RunningDaemon) -> bool:
    states = daemon.engine.log_states()
    return bool(states) and all(one.ledger_id >= 0 and not one.lag_seconds for one in states)


def offer(client: ShimClient, world: World, url: str) -> None:
    client.offer_logs(world)
    client.log_home = url


async def fill(client: ShimClient, daemon: RunningDaemon, world: World, url: str) -> None:
    """100 entries in the log, 10 of them acknowledged."""
    offer(client, world, url)
    stream = await client.open(TOPIC)
    stream.add(entries(100, now_ms() + HOUR_MS))
    stream.ack(PositionSet.of((1, entry_id) for entry_id in range(10)))
    await stream.durable()
    await until(lambda: up_to_date(daemon))


def ledgers(home: Path) -> list[Path]:
    return sorted(home.glob("*/*"))


async def test_another_daemon_knows_what_the_first_one_did(
    start: StartDaemon, socket_path: Path, folder: Path, log: io.StringIO
) -> None:
    world, url = World(), f"file://{folder}"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, url)
        stream = client.streams[1]
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.close()  # which takes the last words to the log
        pointer = Pointer.parse(world.pointer)
        assert pointer is not None
        assert pointer.home == url
        assert not world.ledgers, "nothing is in BookKeeper"
    made = list(folder.rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        before = ledgers(folder)
        offer(client, world, url)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 95
        assert len(stream.acknowledged) == 10
        assert RESTORED in log.getvalue()
        stream.add(entries(1, now_ms(), ledger_id=3))
        assert next(iter(await stream.take_due(1)))[1:] == (3, 0)
        # Another ledger, and the former one is deleted.
        await until(lambda: up_to_date(daemon) and len(ledgers(folder)) == 1 and ledgers(folder) != before)


async def test_it_is_read_from_the_brokers_own_url_and_from_no_other(
    start: StartDaemon, socket_path: Path, folder: Path, log: io.StringIO
) -> None:
    world = World()
    for name in ("one", "other"):
        (folder / name).mkdir()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, f"file://{folder}/one")
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        offer(client, world, f"file://{folder}/other")
        stream = await client.open(TOPIC, epoch=2)
        assert not stream.held
        assert UNREADABLE in log.getvalue()
        assert "which is not where this broker keeps its own" in log.getvalue()
        stream.add(entries(3, now_ms() + HOUR_MS))
        await until(lambda: up_to_date(daemon))
    assert len(ledgers(folder / "other")) == 1


async def test_a_log_moves_from_bookkeeper_to_a_url_and_back(
    start: StartDaemon, socket_path: Path, folder: Path
) -> None:
    world, url = World(), f"file://{folder}"
    for epoch, home in enumerate(("bookkeeper", url, "bookkeeper"), 1):
        async with start() as daemon, await ShimClient.connect(socket_path) as client:
            if epoch == 1:
                await fill(client, daemon, world, home)
                continue
            offer(client, world, home)
            stream = await client.open(TOPIC, epoch=epoch)
            if home == url:
                assert len(stream.held) == 90
            stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=10 + epoch))
            await until(lambda: up_to_date(daemon))
            if home == url:
                await until(lambda: not world.ledgers)
                assert len(ledgers(folder)) == 1
            else:
                assert len(world.ledgers) == 1


async def test_with_what_is_cleared_its_log_goes(start: StartDaemon, socket_path: Path, folder: Path) -> None:
    """As when the subscription is deleted. One unloaded with nothing left in it keeps its log."""
    world, url = World(), f"file://{folder}"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, url)
        stream = client.streams[1]
        stream.mark_delete(9, 9)
        await stream.close()
        assert len(ledgers(folder)) == 1
        offer(client, world, url)
        stream = await client.open(TOPIC, epoch=2)
        stream.clear()
        await stream.close()
        await until(lambda: not list(folder.iterdir()))
        # The last tracker opens its stream once more, under another seal, before it learns of the end.
        world.pointer = ""
        offer(client, world, url)
        stream = await client.open(TOPIC, epoch=2, generation=GENERATION + 1)
        await until(lambda: bool(ledgers(folder)))
        await stream.close()
        await until(lambda: not list(folder.iterdir()))
        # A new subscription: that log stays.
        world.pointer = ""
        offer(client, world, url)
        stream = await client.open(TOPIC, epoch=3)
        stream.add(entries(1, now_ms() + HOUR_MS))
        await until(lambda: up_to_date(daemon))
        await stream.close()
        assert len(ledgers(folder)) == 1


async def test_what_is_cleared_and_loaded_again_at_once_keeps_its_log(
    start: StartDaemon, socket_path: Path, folder: Path
) -> None:
    """The first stream has its last words while the second one already writes the log."""
    world, url = World(), f"file://{folder}"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, url)
        former = client.streams[1]
        former.clear()
        former.change(Close())
        newer = client.begin_open(TOPIC, epoch=2)
        await former.until(lambda: former.closed)
        newer.add(entries(5, now_ms() + HOUR_MS))
        await newer.durable()
        await until(lambda: up_to_date(daemon))
        pointer = Pointer.parse(world.pointer)
        assert pointer is not None
        assert f"{pointer.ledger_id:020}" in [ledger.name for ledger in ledgers(folder)]


async def test_a_log_that_is_begun_while_the_former_one_is_deleted_is_not_deleted_with_it(
    start: StartDaemon, socket_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a backlog was cleared without a consumer, and one subscribes again at once."""
    world, url = World(), f"file://{folder}"
    may_delete, delete_all = asyncio.Event(), ObjectHome.delete_all

    async def slowly(home: ObjectHome) -> None:
        await may_delete.wait()
        await delete_all(home)

    monkeypatch.setattr(ObjectHome, "delete_all", slowly)
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, url)
        former = client.streams[1]
        former.clear()
        await former.close()
        world.pointer = ""
        offer(client, world, url)
        stream = await client.open(TOPIC, epoch=2)
        stream.add(entries(5, now_ms() + HOUR_MS))
        await stream.durable()
        with contextlib.suppress(TimeoutError):
            await until(lambda: up_to_date(daemon), timeout_s=0.5)
        may_delete.set()
        await until(lambda: up_to_date(daemon) and not daemon.engine.log_states()[0].failure)
        pointer = Pointer.parse(world.pointer)
        assert pointer is not None
        assert [ledger.name for ledger in ledgers(folder)] == [f"{pointer.ledger_id:020}"]


async def test_a_folder_that_is_not_there_is_not_made(
    start: StartDaemon, socket_path: Path, folder: Path, log: io.StringIO
) -> None:
    """It may be an unmounted one. All goes on, and the log follows when it is there."""
    world, missing = World(), folder / "not-mounted"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        offer(client, world, f"file://{missing}")
        stream = await client.open(TOPIC)
        stream.add(entries(5, now_ms()))
        assert len(await stream.take_due(5)) == 5
        await until(lambda: any(one.failure for one in daemon.engine.log_states()))
        assert "there is no folder" in log.getvalue()
        assert not missing.exists()
        missing.mkdir()
        await until(lambda: up_to_date(daemon))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nowhere://bucket/folder", "fsspec knows nothing of nowhere://"),
        ("s3://key:secret@bucket", "a URL must have no name and password"),
        ("elsewhere", "does not know the home"),
    ],
)
async def test_a_url_that_cannot_be_costs_the_log_and_says_so(
    start: StartDaemon, socket_path: Path, log: io.StringIO, url: str, said: str
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        offer(client, world, url)
        stream = await client.open(TOPIC)
        stream.add(entries(5, now_ms()))
        assert len(await stream.take_due(5)) == 5
        await until(lambda: said in log.getvalue())
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await until(lambda: any(said in one.failure for one in daemon.engine.log_states()))
        status = await asyncio.to_thread(run, "status", "--socket", str(socket_path))
        assert said in status.stdout
        assert b"\ntidegate_index_logs_failing 1.0\n" in await daemon.exposition()
        assert "secret" not in log.getvalue() + status.stdout
        await stream.close()
        assert not daemon.engine.log_states()


async def test_a_flipped_byte_costs_what_comes_after_it(
    start: StartDaemon, socket_path: Path, folder: Path, log: io.StringIO
) -> None:
    world, url = World(), f"file://{folder}"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, url)
        stream = client.streams[1]
        stream.add(entries(7, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
    last = max(path for path in folder.glob("*/*/[0-9]*"))
    last.write_bytes(last.read_bytes()[:-1] + b"\xff")
    async with start(), await ShimClient.connect(socket_path) as client:
        offer(client, world, url)
        assert len((await client.open(TOPIC, epoch=2)).held) == 90
    assert "the end of an index log cannot be read" in log.getvalue()


async def test_by_s3(
    start: StartDaemon,
    socket_path: Path,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    s3: S3Server,
) -> None:
    s3.be_used(monkeypatch)
    world, url = World(), f"s3://{s3.bucket}/logs"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, url)
    async with start(), await ShimClient.connect(socket_path) as client:
        offer(client, world, url)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 90
        assert len(stream.acknowledged) == 10
    assert RESTORED in log.getvalue()
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in log.getvalue()
