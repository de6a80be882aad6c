"""``tidegate attach`` and ``tidegate detach`` as a user types them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient, entries
from tidegate.plugin.commands.attach import DAEMON_WAIT_S, closed_to
from tidegate.plugin.shared.users import serving_user

ROOT = Path(__file__).parents[3]
SOCKET = "/run/tidegate/t.sock"


def tidegate(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate.plugin.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=False, timeout=60
    )


def contents(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_dry_run_shows_a_diff_that_patch_accepts_and_changes_nothing(home: Path, tmp_path: Path) -> None:
    before = contents(home)
    done = tidegate("attach", home, "--socket", SOCKET, "--tune-acks", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert contents(home) == before
    assert "would be attached; nothing was changed" in done.stdout
    assert "create lib/tidegate-pulsar-shim.jar" in done.stdout
    diff = tmp_path / "attach.diff"
    diff.write_text(done.stdout[done.stdout.index("--- a/") : done.stdout.index(str(home))])
    subprocess.run(["git", "apply", "--unsafe-paths", "-p1", str(diff)], cwd=home, check=True)
    patched = contents(home)
    subprocess.run(["git", "apply", "--unsafe-paths", "-p1", "-R", str(diff)], cwd=home, check=True)
    assert contents(home) == before
    assert tidegate("attach", home, "--socket", SOCKET, "--tune-acks").returncode == 0
    attached = contents(home)
    assert {path: attached[path] for path in patched} == patched


def test_the_diff_of_a_crlf_file_fits_it(home: Path, tmp_path: Path) -> None:
    for name in ("broker.conf", "standalone.conf"):
        conf = home / "conf" / name
        conf.write_bytes(conf.read_bytes().replace(b"\n", b"\r\n").replace(b"\r\n", b" \xff\r\n", 1))
    command = [sys.executable, "-m", "tidegate.plugin.cli", "attach", str(home), "--socket", SOCKET]
    said = subprocess.run([*command, "--dry-run"], capture_output=True, check=True, timeout=60).stdout
    diff = tmp_path / "attach.diff"
    diff.write_bytes(said[said.index(b"--- a/") : said.index(bytes(home))])
    assert diff.read_bytes().count(b"\r\n+") > 1
    subprocess.run(["git", "apply", "--unsafe-paths", "-p1", str(diff)], cwd=home, check=True)
    patched = contents(home)
    assert tidegate("attach", home, "--socket", SOCKET).returncode == 0
    attached = contents(home)
    assert {path: attached[path] for path in patched} == patched


def test_attach_says_what_it_did_and_what_comes_next(home: Path) -> None:
    done = tidegate("attach", home, TIDEGATE_SOCKET=SOCKET)
    assert done.stdout.startswith(f"attached {home} (Pulsar 4.0.8): ")
    assert f"tidegate serve --data DIR --socket {SOCKET}, then restart the broker" in done.stdout
    assert "--tune-acks does it" in done.stdout
    assert "waits up to 10 s (tidegateDaemonWaitMillis)" in done.stdout
    assert "is attached already: nothing to do" in tidegate("attach", home).stdout
    loses = "then rescheduled messages come at their producers' times, and paused or paced ones when due\n"
    planned = tidegate("detach", home, "--dry-run").stdout
    assert planned.endswith(f"would be detached; nothing was changed\n{loses}")
    assert tidegate("detach", home).stdout.endswith(f"next: restart the broker\n{loses}")
    assert "is not attached: nothing to do" in tidegate("detach", home).stdout


def test_a_python_in_another_users_home_is_none_for_the_daemon(short_dir: Path) -> None:
    home, venv = short_dir / "home", short_dir / "venv"
    home.mkdir(mode=0o755)
    venv.mkdir()
    (home / "python").touch()
    (venv / "python").symlink_to(home / "python")
    short_dir.chmod(0o755)
    assert closed_to(123_456, venv / "python") is None
    home.chmod(0o700)
    assert closed_to(123_456, venv / "python") == home.resolve()
    assert closed_to(0, venv / "python") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root attaches another user's Pulsar")
def test_attach_names_the_user_of_another_ones_home(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, 123_456, -1)
    assert "next: as 123456: tidegate serve" in tidegate("attach", home, "--socket", SOCKET).stdout


def test_the_user_of_a_root_s_home_is_the_broker_s_own() -> None:
    assert (serving_user(0), serving_user(123_456)) == ("the user that the broker runs as", "123456")


async def test_the_way_back_names_each_broker(home: Path, start: StartDaemon, socket_path: Path) -> None:
    assert tidegate("attach", home, "--socket", socket_path).returncode == 0
    before = contents(home)
    async with (
        start(),
        await ShimClient.connect(socket_path, "broker-1") as client,
        await ShimClient.connect(socket_path, "broker-2"),
    ):
        stream = await client.open("persistent://public/default/orders")
        stream.add(entries(5, 4_000_000_000_000))
        await stream.durable()
        said = (await asyncio.to_thread(tidegate, "detach", home, "--plan")).stdout
    assert contents(home) == before
    assert "5 delayed messages: Pulsar's tracker reads their topics again" in said
    assert [line for line in said.splitlines() if line[0].isdigit()][1:4] == [
        "1. broker-1, on its machine:",
        "2. broker-2, on its machine:",
        "3. Stop the daemon when its status says: no broker is connected.",
    ]
    assert said.count(f"   tidegate detach {home}\n") == 2
    away = tidegate("detach", home, "--plan")
    assert (away.returncode, away.stderr) == (0, "")
    assert f"No daemon answers on {socket_path}: each broker that it served" in away.stdout
    assert "1. each broker, on its machine:" in away.stdout
    assert tidegate("detach", home, "--plan", "--json").returncode == 2


def test_the_wait_is_the_shims() -> None:
    source = ROOT / "plugin/shim/src/main/java/tidegate/pulsar/ShimConfig.java"
    assert re.search(rf"DAEMON_WAIT, {DAEMON_WAIT_S}_000\b", source.read_text("utf-8"))


def test_json_is_one_object(home: Path) -> None:
    done = json.loads(tidegate("attach", home, "--socket", SOCKET, "--json").stdout)
    assert done["changed"]
    assert done["settings"]["socket"] == SOCKET
    assert {"path": "conf/broker.conf", "change": "replace"} in done["files"]
    assert not json.loads(tidegate("attach", home, "--json").stdout)["changed"]
    undone = json.loads(tidegate("detach", home, "--json").stdout)
    loses = "rescheduled messages come at their producers' times, and paused or paced ones when due"
    assert (undone["changed"], undone["notes"]) == (True, [loses])
    assert json.loads(tidegate("detach", home, "--json").stdout)["notes"] == []


def test_a_home_of_index_logs_that_cannot_be_is_one_plain_line(home: Path) -> None:
    conf = home / "conf" / "broker.conf"
    before = conf.read_bytes()
    done = tidegate("attach", home, "--index-log", "s3://key:secret@bucket")
    assert done.returncode == 1
    assert done.stderr.startswith("tidegate: --index-log is refused: ")
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr
    assert conf.read_bytes() == before


@pytest.mark.parametrize("command", ["attach", "detach"])
def test_a_mistake_is_one_line_and_an_exit_code(command: str, tmp_path: Path) -> None:
    done = tidegate(command, tmp_path / "nowhere")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("tidegate: ")
    assert done.stderr.count("\n") == 1


def test_the_home_may_come_from_the_environment(home: Path) -> None:
    assert tidegate("attach", "--socket", SOCKET, "--dry-run", PULSAR_HOME=str(home)).returncode == 0
