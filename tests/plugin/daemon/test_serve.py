"""A real `tidegate serve` as a process.

Signals, kill -9, a second one, and what it says when it cannot start.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.daemons import START_SECONDS, DaemonProcess, assert_one_line, run
from tests.support.shim_client import DaemonError, ShimClient, entries
from tests.support.waiting import until
from tidegate.index.format.envelope import FORMAT_VERSION, wrap
from tidegate.index.format.keys import FORMAT_KEY
from tidegate.index.rocks.directory import ASIDE_NAME, WITNESS_NAME
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.local.daemon import without_settings

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
Serve = Callable[..., DaemonProcess]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_store(data: Path, batch: Batch) -> None:
    """Make a data directory that holds just this."""
    store = RocksStore.open(data)
    store.write(batch, sync=True)
    store.close()


async def test_sigterm_ends_it_cleanly_and_everything_is_there_again(serve: Serve, socket_path: Path) -> None:
    daemon = serve("--log-format", "json")
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(1_000, now_ms() + HOUR_MS))
        stream.ack(PositionSet.of([(1, 7)]))
        await stream.durable()
        code = await asyncio.to_thread(daemon.stop)
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.SHUTTING_DOWN
    assert code == 0
    assert not socket_path.exists()
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    events = [line["event"] for line in lines]
    serving = lines[events.index("serving")]
    parts = {name: serving[f"{name}_ms"] for name in ("loading", "claiming", "store", "indexes", "accepting")}
    assert parts["loading"] > 0  # NumPy, RocksDB
    assert parts["store"] > 0  # it was made
    assert min(parts.values()) >= 0
    assert sum(parts.values()) <= serving["start_ms"] <= sum(parts.values()) + len(parts), "no gap"
    assert events[-1] == "stopped, everything received is on disk"

    await serve().ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert len(stream.held) == 999
        assert list(stream.acknowledged) == [(1, 7)]


STOPPED_AT_ONCE = """
import asyncio, os, pathlib, signal, sys
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.daemon.serve import serve
from tidegate.plugin.daemon.settings import load_settings

async def main():
    data, socket = map(pathlib.Path, sys.argv[1:])
    log = make_logger("json", "info", sys.stdout)
    running = asyncio.create_task(serve(load_settings({"data": data, "socket": socket}), log, {}))
    await asyncio.sleep(0)  # it heeds signals from here on, and does not serve yet
    os.kill(os.getpid(), signal.SIGTERM)
    await running

asyncio.run(main())
"""


def test_one_that_is_stopped_before_it_serves_does_not_say_that_it_does(
    short_dir: Path, socket_path: Path
) -> None:
    command = [sys.executable, "-c", STOPPED_AT_ONCE, str(short_dir / "data"), str(socket_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
        env=without_settings(os.environ),
    )
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events == ["stopping", "stopped, everything received is on disk"]


async def test_nobody_else_can_read_the_data_directory(serve: Serve, socket_path: Path) -> None:
    """Nor the files that are made while it runs."""
    before = os.umask(0o022)
    try:
        daemon = serve()
    finally:
        os.umask(before)
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(1_000, now_ms() + HOUR_MS))
        await stream.durable()
    data = daemon.data_dir
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()} == {0o600}


def test_a_directory_that_is_not_an_index_is_refused_in_one_line(short_dir: Path) -> None:
    (short_dir / "thesis.tex").write_text("important")
    done = run("serve", "--data", str(short_dir), "--socket", str(short_dir / "s" / "t.sock"))
    assert_one_line(done, "'s', 'thesis.tex'): choose another data directory", 1)


async def test_the_socket_and_its_token_may_be_in_the_data_directory(short_dir: Path) -> None:
    token = short_dir / "token"
    token.write_text("secret")
    token.chmod(0o600)
    path = short_dir / "t.sock"
    arguments = ["serve", "--data", str(short_dir), "--socket", str(path), "--http-token-file", str(token)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate.plugin.cli", *arguments], env=without_settings(os.environ)
    )
    try:
        await until(lambda: is_listening(path))
        async with await ShimClient.connect(path) as client:
            await client.open(TOPIC)
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, START_SECONDS) == 0


def is_listening(path: Path) -> bool:
    """True if a connection is accepted: the file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


async def test_sigint_is_clean_too(serve: Serve) -> None:
    daemon = serve()
    await daemon.ready()
    assert await asyncio.to_thread(daemon.end, signal.SIGINT, START_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_it_at_once(number: signal.Signals, short_dir: Path) -> None:
    stuck = """
import asyncio
from tidegate.plugin.daemon import server
from tidegate.plugin import cli
async def stop(self, timeout_s):
    await asyncio.Event().wait()
server.Server.stop = stop
cli.main()
"""
    arguments = ["serve", "--data", str(short_dir / "data"), "--socket", str(short_dir / "s")]
    process = subprocess.Popen(
        [sys.executable, "-c", stuck, *arguments, "--log-format", "json"],
        stderr=subprocess.PIPE,
        text=True,
        env=without_settings(os.environ),
    )
    assert process.stderr is not None
    try:
        for event in ("serving", "stopping"):
            assert json.loads(await asyncio.to_thread(process.stderr.readline))["event"] == event
            process.send_signal(number)
        assert await asyncio.to_thread(process.wait, START_SECONDS) == -number
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("kills", [3])
async def test_what_was_durable_survives_sigkill(serve: Serve, socket_path: Path, kills: int) -> None:
    durable = PositionSet()
    for life in range(kills):
        daemon = serve()
        await daemon.ready()
        async with await ShimClient.connect(socket_path, f"broker-{life}") as client:
            stream = await client.open(TOPIC)
            assert durable.issubset(stream.held)
            sent = []
            for number in range(200):
                batch = entries(50, now_ms() + HOUR_MS, ledger_id=life, first_entry=50 * number)
                sent.append(batch)
                stream.add(batch)
                await asyncio.sleep(0)
            await stream.durable(100)
            daemon.kill()
            await client.ended()
            for batch in sent[: stream.durable_seq]:
                durable.update(PositionSet.of_entries(batch))
    assert len(durable) >= kills * 100 * 50
    await serve().ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert durable.issubset(stream.held)
        stream.add(entries(1, now_ms(), ledger_id=99))
        assert list(PositionSet.of_entries(await stream.take_due(1))) == [(99, 0)]


async def test_overdue_entries_come_at_once_after_sigkill(serve: Serve, socket_path: Path) -> None:
    daemon = serve()
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, credit=0)
        stream.add(entries(100, now_ms() + 50))
        await stream.durable()
        daemon.kill()
        await client.ended()
    await serve().ready()
    async with await ShimClient.connect(socket_path) as client:
        assert len(await (await client.open(TOPIC)).take_due(100)) == 100


async def test_a_disk_that_is_full_for_a_while(serve: Serve, socket_path: Path) -> None:
    daemon = serve("--log-format", "json")
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(1_000, now_ms() + HOUR_MS))
        await stream.durable()
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (100_000, hard))
        for ledger_id in range(2, 10):
            stream.add(entries(10_000, now_ms() + HOUR_MS, ledger_id=ledger_id))
        assert (await stream.ended()).code == ErrorCode.STORAGE
        durable = 1_000 + 10_000 * (stream.durable_seq - 1)
        shown = await asyncio.to_thread(run, "status", "--socket", str(socket_path), COLUMNS="400")
        assert "NOT READY: nothing new can be made durable, held messages are still delivered" in shown.stdout

        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        async with asyncio.timeout(START_SECONDS):
            while True:
                again = await client.open(TOPIC)
                assert len(again.held) >= durable
                again.add(entries(10_000, now_ms() + HOUR_MS, ledger_id=2))
                try:
                    await again.durable()
                except DaemonError:
                    await asyncio.sleep(0.05)
                else:
                    break
        daemon.kill()
        await client.ended()
    await serve().ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert PositionSet.of_entries(entries(10_000, 0, ledger_id=2)).issubset(stream.held)
        assert PositionSet.of_entries(entries(1_000, 0)).issubset(stream.held)


async def test_a_second_daemon_on_the_same_socket(serve: Serve, socket_path: Path, short_dir: Path) -> None:
    await serve().ready()
    second = await asyncio.to_thread(
        run, "serve", "--data", str(short_dir / "data-2"), "--socket", str(socket_path)
    )
    assert_one_line(second, "another daemon answers on", 1)
    async with await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)


async def test_a_second_daemon_on_the_same_data(serve: Serve, socket_path: Path, short_dir: Path) -> None:
    first = serve()
    await first.ready()
    other_socket = short_dir / "other.sock"
    second = await asyncio.to_thread(
        run, "serve", "--data", str(first.data_dir), "--socket", str(other_socket)
    )
    assert_one_line(second, "is in use by another Tidegate daemon", 1)
    assert not other_socket.exists()


def test_a_data_directory_that_cannot_be_written(short_dir: Path, socket_path: Path) -> None:
    (short_dir / "file").write_text("", "utf-8")
    done = run("serve", "--data", str(short_dir / "file"), "--socket", str(socket_path))
    assert_one_line(done, "cannot write to the data directory", 1)
    assert not socket_path.exists()


def test_a_data_directory_of_something_else(short_dir: Path, socket_path: Path) -> None:
    batch = Batch()
    batch.put(b"a key", b"of somebody else")
    write_store(short_dir / "data", batch)
    done = run("serve", "--data", str(short_dir / "data"), "--socket", str(socket_path))
    assert_one_line(done, "choose another data directory", 1)


def test_a_data_directory_of_a_newer_format(short_dir: Path, socket_path: Path) -> None:
    batch = Batch()
    batch.put(FORMAT_KEY, wrap(FORMAT_KEY[:1], (FORMAT_VERSION + 1).to_bytes(4, "little")))
    write_store(short_dir / "data", batch)
    done = run("serve", "--data", str(short_dir / "data"), "--socket", str(socket_path))
    assert_one_line(
        done, f"has format {FORMAT_VERSION + 1}, this Tidegate knows formats up to {FORMAT_VERSION}", 1
    )
    assert not socket_path.exists()


@pytest.mark.parametrize("value", [b"", b"garbage", bytes(16)])
def test_a_data_directory_whose_format_record_is_damaged(
    value: bytes, short_dir: Path, socket_path: Path
) -> None:
    """Without a witness, as below; and it stays one, however often it is tried."""
    data = short_dir / "data"
    batch = Batch()
    batch.put(FORMAT_KEY, value)
    write_store(data, batch)
    (data / WITNESS_NAME).unlink()
    for _ in range(2):
        done = run("serve", "--data", str(data), "--socket", str(socket_path))
        assert_one_line(done, str(data), 1)
        assert not socket_path.exists()
        assert not (data / WITNESS_NAME).exists()
        assert not (data / ASIDE_NAME).exists()


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*"])
def test_a_data_directory_whose_files_are_damaged(pattern: str, short_dir: Path, socket_path: Path) -> None:
    """Without a witness it may be somebody else's; one of ours is moved away: `test_damaged_directory.py`."""
    data = short_dir / "data"
    write_store(data, Batch())
    (data / WITNESS_NAME).unlink()
    (damaged,) = data.glob(pattern)
    damaged.write_bytes(b"garbage")
    for _ in range(2):
        done = run("serve", "--data", str(data), "--socket", str(socket_path))
        assert_one_line(done, str(data), 1)
        assert not socket_path.exists()
        assert not (data / WITNESS_NAME).exists()
        assert not (data / ASIDE_NAME).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "data is not set"),
        (("--data", "d", "--log-level", "loud"), "log_level: must be debug, info, warning or error"),
        (("--data", "d", "--http", "nowhere"), "http: must be an IP address"),
        (("--data", "d", "--http", "0.0.0.0:8088"), "set http_token_file as well"),
        (("--data", "d", "--config", "/nonexistent.toml"), "cannot read the config file"),
    ],
)
def test_bad_settings(arguments: tuple[str, ...], said: str) -> None:
    assert_one_line(run("serve", *arguments), said, 2)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"TIDEGATE_SLICE_WIDTH_MS": "99999999999999999"},
            "slice_width_ms: must be a whole number from 1000 to",
        ),
        ({"TIDEGATE_STAGING_BYTES_MAX": "65536"}, "staging_bytes_max: 65536 is less than twice"),
    ],
)
def test_bad_settings_in_the_environment(environment: dict[str, str], said: str, short_dir: Path) -> None:
    arguments = ("--data", str(short_dir / "data"), "--socket", str(short_dir / "s"))
    assert_one_line(run("serve", *arguments, **environment), said, 2)


async def test_an_http_port_in_use(serve: Serve, short_dir: Path, socket_path: Path) -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await asyncio.to_thread(
            run,
            "serve",
            "--data",
            str(short_dir / "d"),
            "--socket",
            str(socket_path),
            "--http",
            f"127.0.0.1:{port}",
        )
    assert_one_line(done, "choose another --http", 1)
    assert not socket_path.exists()


async def test_settings_from_the_environment_and_http(
    serve: Serve, short_dir: Path, socket_path: Path
) -> None:
    config = short_dir / "tidegate.toml"
    config.write_text('http = "127.0.0.1:0"\nlog_format = "json"\n', "utf-8")
    daemon = serve("--config", str(config))
    assert (await asyncio.to_thread(httpx.get, f"{await daemon.base_url()}/healthz")).text == "ok\n"


async def test_no_token_is_logged(serve: Serve, short_dir: Path) -> None:
    token, wrong = "d0e5-a-long-random-word", "77aa-another-word"
    path = short_dir / "token"
    path.write_text(token, "utf-8")
    path.chmod(0o600)
    http = ("--http", "127.0.0.1:0", "--http-token-file", str(path))
    daemon = serve(*http, "--log-format", "json", "--log-level", "debug")
    base = await daemon.base_url()
    async with httpx.AsyncClient(trust_env=False) as client:
        for word, code in ((token, 405), (wrong, 401)):
            headers = {"Authorization": f"Bearer {word}"}
            assert (await client.post(f"{base}/status", headers=headers)).status_code == code
            answer = await client.get(f"{base}/status", headers=headers)
            assert word not in answer.text
    await asyncio.to_thread(daemon.stop)
    lines = daemon.log().splitlines()
    assert json.loads(lines[-1])["event"] == "stopped, everything received is on disk"
    assert not [line for line in lines if token in line or wrong in line or "Bearer" in line]


async def test_status_of_a_running_daemon(serve: Serve, socket_path: Path) -> None:
    await serve().ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "billing")
        stream.add(entries(30_000, now_ms() + 2 * HOUR_MS))
        await stream.durable()
        shown = await asyncio.to_thread(run, "status", "--socket", str(socket_path), COLUMNS="200")
        assert shown.returncode == 0, shown.stderr
        assert "broker broker-1 (pulsar 4.0.8) connected, 1 stream" in shown.stdout
        assert "30,000 held" in shown.stdout
        assert "billing" in shown.stdout
        as_json = await asyncio.to_thread(run, "status", "--json", TIDEGATE_SOCKET=str(socket_path))
        answer = json.loads(as_json.stdout)
        assert answer["schema"] == 1
        (subscription,) = answer["subscriptions"]
        assert subscription["held"] == 30_000
        assert subscription["broker"] == "broker-1"


def test_status_without_a_daemon(socket_path: Path) -> None:
    assert_one_line(run("status", "--socket", str(socket_path)), "no daemon answers on", 3)
    assert_one_line(run("status", "--http", "127.0.0.1:1"), "no daemon answers on", 3)


def test_status_without_a_daemon_tells_what_the_files_say(socket_path: Path, short_dir: Path) -> None:
    home = short_dir / "pulsar"
    (home / "conf").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "conf" / "broker.conf").write_text("clusterName=one\n", "utf-8")
    (home / "lib" / "org.apache.pulsar-pulsar-broker-4.0.8.jar").write_bytes(b"")
    arguments = ("status", "--socket", str(socket_path), "--pulsar-home", str(home))
    done = run(*arguments, COLUMNS="400")
    assert_one_line(done, "no daemon answers on", 3)
    assert "(Pulsar 4.0.8) is not attached" in done.stdout
    done = run(*arguments, "--json")
    assert_one_line(done, "no daemon answers on", 3)
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["daemon"], answer["attached"]["state"]) == (1, None, "detached")
    done = run("status", "--socket", str(socket_path), "--json")
    assert_one_line(done, "no daemon answers on", 3)
    assert json.loads(done.stdout) == {"schema": 1, "daemon": None}


def test_every_command_helps_with_an_example() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "Example: tidegate serve" in shown.stdout
    listed = shown.stdout.partition("Commands:")[2].partition("Example:")[0]
    commands = [line.split()[0] for line in listed.splitlines() if line[2:3].isalpha()]
    assert set(commands) >= {"serve", "status", "width", "attach", "detach", "demo", "setup"}
    assert run("-h").stdout == shown.stdout
    for command in commands:
        done = run(command, "--help")
        assert done.returncode == 0
        assert f"Example: tidegate {command}" in " ".join(done.stdout.split())
        assert run(command, "-h").stdout == done.stdout


def test_without_a_word_it_helps() -> None:
    done = run()
    assert done.returncode == 0
    assert "Commands:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sreve",), "tidegate: No such command 'sreve'. Did you mean 'serve'?; see `tidegate --help`"),
        (("--colour",), "; see `tidegate --help`"),
        (("serve", "--dta", "d"), "; see `tidegate serve --help`"),
        (("serve", "--data"), "; see `tidegate serve --help`"),
        (("attach",), "; see `tidegate attach --help`"),
        (("attach", "home", "--horizon-ms", "soon"), "; see `tidegate attach --help`"),
        (("status", "orders", "now"), "; see `tidegate status --help`"),
        (("width",), "; see `tidegate width --help`"),
        (
            ("width", "orders:late", "ten"),
            "'ten' is not a duration: write a number and ms, s, m, h or d, as in 10m",
        ),
        (("width", "orders:late", "10"), "as in 10m, or auto; see `tidegate width --help`"),
        (
            ("width", "orders:late", "500ms"),
            "a slice is 1s to 3660d wide, not 500ms; see `tidegate width --help`",
        ),
        (("width", "orders:late", "4000d"), "a slice is 1s to 3660d wide, not 4000d"),
        (("serve", "--data", ""), "what follows --data is empty"),
        (("serve", "--data", "d", "--socket="), "what follows --socket is empty"),
        (("status", "--socket", ""), "what follows --socket is empty"),
        (("status", "--pulsar-home="), "what follows --pulsar-home is empty"),
        (("attach", ""), "what follows attach is empty"),
        (("setup", "--cache-dir", ""), "what follows --cache-dir is empty"),
        (("drill", "report", "--out", ""), "what follows --out is empty"),
        (("tune", "--report", ""), "what follows --report is empty"),
    ],
)
def test_what_was_typed_wrongly_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert_one_line(done, said, 2)
    assert done.stderr.startswith("tidegate: ")
    assert done.stdout == ""


AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from tidegate.plugin import cli
from tidegate.plugin.commands import attach, status, width
sys.argv = ["tidegate", "status", "--help"]
try:
    cli.main()  # loads what it needs while it may
except SystemExit:
    pass
path, sys.argv = Path(sys.argv_given[0]), ["tidegate", *sys.argv_given[1:]]
if os.geteuid() == 0:
    os.setuid(65_534)
else:
    path.chmod(0)
cli.main()
"""


@pytest.mark.parametrize("command", [("status",), ("width", "orders:late")])
@pytest.mark.parametrize("closed", ["socket", "directory"])
async def test_the_wrong_user_is_told_so(
    command: tuple[str, ...], closed: str, serve: Serve, short_dir: Path, socket_path: Path
) -> None:
    await serve().ready()
    short_dir.chmod(0o755 if closed == "socket" else 0o700)
    path = socket_path if closed == "socket" else short_dir
    given = [str(path), *command, "--socket", str(socket_path)]
    script = [sys.executable, "-c", AS_ANOTHER_USER.replace("sys.argv_given", repr(given))]
    done = await asyncio.to_thread(
        subprocess.run, script, capture_output=True, text=True, env=without_settings(os.environ)
    )
    if closed == "directory":
        short_dir.chmod(0o700)
    else:
        socket_path.chmod(0o600)
    assert done.returncode == 1, done.stderr
    assert done.stderr == f"tidegate: no permission to talk to {socket_path}: run this as the daemon's user\n"


@pytest.mark.parametrize("arguments", [("status",), ("status", "--json"), ("width", "*", "--json")])
async def test_a_reader_that_has_seen_enough(
    arguments: tuple[str, ...], serve: Serve, socket_path: Path
) -> None:
    await serve().ready()
    async with await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)
        await asyncio.to_thread(seen_enough, arguments, socket_path)


def seen_enough(arguments: tuple[str, ...], socket_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tidegate.plugin.cli", *arguments, "--socket", str(socket_path)]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, env=without_settings(os.environ), check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")  # as of a process that SIGPIPE has ended


def test_the_version() -> None:
    assert run("--version").stdout.startswith("tidegate ")
