"""The default socket, and variables that are misspelt."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.support.daemons import assert_one_line, run
from tidegate.plugin.daemon.settings import Settings, load_settings
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.local import toolchain
from tidegate.plugin.shared.environment import (
    SETTINGS,
    default_socket,
    refuse_misspelt,
    require_linux,
    unknown,
)

SERVICE = Path("/run/tidegate/tidegate.sock")
USER = 1_000


def test_the_names_are_those_of_the_settings() -> None:
    assert sorted(each.name for each in fields(Settings)) == list(SETTINGS)


def test_root_and_services_have_one_place() -> None:
    assert default_socket({}, 0) == default_socket({}, USER) == SERVICE


def test_a_user_has_it_in_the_runtime_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    uid = tmp_path.stat().st_uid
    if uid:  # root has the one place, whatever the environment says
        assert default_socket(environment, uid) == tmp_path / "tidegate" / "tidegate.sock"
    else:
        os.chown(tmp_path, USER, -1)
        assert default_socket(environment, USER) == tmp_path / "tidegate" / "tidegate.sock"
        assert default_socket(environment, 0) == SERVICE


@pytest.mark.parametrize("runtime", ["", "run", "/nonexistent", "/nul\0", "/tmp"])  # noqa: S108 refused
def test_what_is_no_runtime_directory_of_this_user_is_not_used(runtime: str) -> None:
    assert default_socket({"XDG_RUNTIME_DIR": runtime}, USER) == SERVICE


def test_of_another_user_or_open_to_others_is_not_used(tmp_path: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)
    assert default_socket(environment, tmp_path.stat().st_uid + 1) == SERVICE
    tmp_path.chmod(0o755)
    assert default_socket(environment, tmp_path.stat().st_uid) == SERVICE


def test_all_commands_look_in_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_SOCKET", raising=False)
    place = default_socket(os.environ, os.geteuid())
    assert load_settings({"data": tmp_path}).socket == place
    for command in (("status",), ("width", "orders:late")):
        assert_one_line(run(*command), f"no daemon answers on {place}", 3)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TIDEGATE_SOKCET", "TIDEGATE_SOCKET"),
        ("TIDEGATE_SOCKETS", "TIDEGATE_SOCKET"),
        ("tidegate_sockt", "TIDEGATE_SOCKET"),
        ("TIDEGATE_HEARTBEATMS", "TIDEGATE_HEARTBEAT_MS"),
        ("TIDEGATE_CACHEDIR", "TIDEGATE_CACHE_DIR"),
        ("TIDEGATE_DATA_DIR", "TIDEGATE_DATA"),
        ("TIDEGATE_LOGLEVEL", "TIDEGATE_LOG_LEVEL"),
        ("TIDEGATE_PULSAR_TOKN", "TIDEGATE_PULSAR_TOKEN"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} in the environment is not known: is it {meant}\\?$"):
        refuse_misspelt({name: "x", "PATH": "/bin"})


@pytest.mark.parametrize(
    "name",
    [
        "TIDEGATE_SOCKET",
        "tidegate_socket",
        "TIDEGATE_CACHE_DIR",
        "TIDEGATE_PULSAR_TOKEN",
        "TIDEGATE_TEST_TRACKER",
        "TIDEGATE_BENCH_KEEP",
        "TIDEGATE_SERVICE_HOST",
        "TIDEGATE_SERVICE_PORT_HTTP",
        "TIDEGATE_PORT",
        "TIDEGATE_PORT_8088_TCP_ADDR",
        "NOT_TIDEGATE_SOCKT",
    ],
)
def test_what_is_known_and_what_is_not_for_us(name: str) -> None:
    refuse_misspelt({name: "x"})
    assert unknown({name: "x"}) == []


def test_what_is_empty_is_not_set_and_what_is_like_nothing_is_told_only() -> None:
    refuse_misspelt({"TIDEGATE_SOKCET": "", "TIDEGATE_ZONE": "eu"})
    assert unknown({"TIDEGATE_SOKCET": "", "TIDEGATE_ZONE": "eu"}) == ["TIDEGATE_ZONE"]


def test_every_command_tells_once_of_variables_that_are_none(tmp_path: Path) -> None:
    away = ("--socket", str(tmp_path / "s"))
    for command in (("width", "orders:late", *away), ("status", *away)):
        done = run(*command, TIDEGATE_ZONE="eu", TIDEGATE_COLOUR="blue", TIDEGATE_SOCKET="s")
        first, *others = done.stderr.splitlines()
        assert first == "tidegate: not known, and ignored, in the environment: TIDEGATE_COLOUR, TIDEGATE_ZONE"
        assert len(others) == 1
        assert "no daemon answers" in others[0]


def test_a_daemon_has_them_in_its_log_alone() -> None:
    done = run("serve", "--data", "d", "--log-level", "loud", TIDEGATE_ZONE="eu")
    assert_one_line(done, "log_level: must be", 2)


@pytest.mark.parametrize(
    ("platform", "name"), [("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")]
)
def test_elsewhere_than_on_linux_it_says_so(platform: str, name: str) -> None:
    require_linux("linux")
    assert toolchain.check_platform("linux") is None
    with pytest.raises(
        UserError, match=f"runs on Linux only, and this is {name}: use a Linux machine"
    ) as refused:
        require_linux(platform)
    assert toolchain.check_platform(platform) == toolchain.Problem(str(refused.value))


@pytest.mark.parametrize("command", ["serve", "status", "width", "attach", "detach", "demo", "setup"])
def test_every_command_refuses_another_system(command: str) -> None:
    script = f"import sys; sys.platform = 'darwin'; sys.argv = ['tidegate', '{command}']\n"
    script += "from tidegate.plugin import cli; cli.main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert_one_line(done, "Tidegate runs on Linux only, and this is macOS: ", 1)
    assert done.stdout == ""


def test_make_refuses_another_system() -> None:
    script = "import runpy, sys; sys.platform = 'darwin'; sys.argv = ['x', '--need', 'python', 'jdk']\n"
    script += f"runpy.run_path({toolchain.__file__!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert_one_line(done, "Tidegate runs on Linux only, and this is macOS: ", 1)


@pytest.mark.parametrize("command", ["serve", "status", "width", "attach", "detach", "demo", "setup"])
def test_every_command_refuses_it(command: str) -> None:
    assert_one_line(run(command, TIDEGATE_SOKCET="x"), "is it TIDEGATE_SOCKET?", 2)
    assert run(command, "--help", TIDEGATE_SOKCET="x").returncode == 0
