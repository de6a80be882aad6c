"""``tidegate detach-all`` as an operator types it, on machines that are folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import assert_one_line, run
from tests.support.machines import Machines
from tests.support.waiting import wait_until
from tidegate.plugin.attach.broker_keys import TRACKER_FACTORY
from tidegate.plugin.attach.plan import PULSARS_OWN_TRACKER
from tidegate.plugin.attach.remote import OverSsh
from tidegate.plugin.attach.way_back import ClusterAdmin, WayBack
from tidegate.plugin.commands.detach_all import _interrupted
from tidegate.plugin.errors import AttachError, ConfigError
from tidegate.plugin.local.daemon import without_settings
from tidegate.plugin.shared.rest import RestClient
from tidegate.plugin.shared.stop import InterruptedRunError

SSH = ("detach-all", "--tidegate", "tidegate")


@pytest.fixture
def machines(tmp_path: Path, home: Path) -> Iterator[Machines]:
    made = Machines(tmp_path / "machines", home)
    with made.serving():
        yield made


def asked(machines: Machines, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(*SSH, *arguments, **machines.environment)


def begun(machines: Machines) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate.plugin.cli", *SSH],
        env=without_settings(os.environ) | machines.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_detached(machines: Machines) -> None:
    for one in machines.all:
        assert one.tracker == PULSARS_OWN_TRACKER
        assert one.conf.read_bytes() == one.plain
        assert not (one.folder / "pulsar/lib/tidegate-pulsar-shim.jar").exists()
    assert [one.restarts for one in machines.all] == [1, 1, 1]


def assert_untouched(machines: Machines) -> None:
    assert {one.tracker for one in machines.all} == {TRACKER_FACTORY}
    assert not any(one.restarts or one.conf.read_bytes() == one.plain for one in machines.all)


def test_every_broker_goes_back_once_and_the_same_command_again_restarts_none(machines: Machines) -> None:
    done = asked(machines)
    assert done.returncode == 0, done.stderr
    assert_detached(machines)
    steps = [line for line in done.stdout.splitlines() if "after its restart" in line]
    assert [line.split()[0] for line in steps] == ["1/3", "2/3", "3/3"]
    again = asked(machines, "--json")
    assert again.returncode == 0, again.stderr
    assert_detached(machines)
    told = json.loads(again.stdout)
    assert (told["done"], told["dry_run"], told["failure"]) == (True, False, None)
    assert {one["broker"]: one["state"] for one in told["brokers"]} == {
        one.name: "other tracker" for one in machines.all
    }


def test_a_dry_run_looks_at_all_and_changes_nothing(machines: Machines) -> None:
    done = asked(machines, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 brokers would be restarted" in done.stdout
    assert_untouched(machines)


def test_a_canary_takes_so_many_and_the_same_command_again_takes_the_next(machines: Machines) -> None:
    canary = ("--count", "2")
    dry = asked(machines, *canary, "--dry-run")
    assert "2 of 3 brokers would be restarted" in dry.stdout, dry.stderr
    assert_untouched(machines)
    done = asked(machines, *canary)
    assert done.returncode == 0, done.stderr
    first, second, third = machines.all
    assert [one.tracker for one in machines.all] == [PULSARS_OWN_TRACKER] * 2 + [TRACKER_FACTORY]
    assert [one.restarts for one in (first, second, third)] == [1, 1, 0]
    assert third.conf.read_bytes() != third.plain
    assert f"{third.name}: runs {TRACKER_FACTORY}; stays as it is for now" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Done: 2 of 3 brokers do not run Tidegate's tracker.")
    told = json.loads(asked(machines, *canary, "--json").stdout)
    assert (told["done"], told["left"], told["failure"]) == (True, 0, None)
    assert_detached(machines)


def test_a_canary_waits_for_one_that_an_earlier_run_restarted(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its name: no other is away meanwhile."""
    monkeypatch.setenv("PATH", machines.environment["PATH"])
    first, _, third = machines.all
    third.become("ill")
    for names in ([third.name], []):
        way = way_of(machines, wait_s=1, count=1)
        way.check(names)
        with pytest.raises(AttachError, match=f"{third.name} is not healthy"):
            way.go()
    assert (first.restarts, third.restarts) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "127.0.0.3:"),
        (("--unit", "pulsar"), "No files found for pulsar"),
        (("--tidegate", "tidegatee"), "tidegatee"),
        (("--ssh", "sssh"), "cannot run sssh"),
    ],
)
def test_nothing_is_changed_before_every_machine_was_seen(
    machines: Machines, arguments: tuple[str, ...], said: str
) -> None:
    machines.all[2].become("unreachable")
    done = asked(machines, *arguments)
    assert_one_line(done, said, 1)
    assert_untouched(machines)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_it_may_be_interrupted_at_any_time(machines: Machines, number: signal.Signals, code: int) -> None:
    """A restart that has begun goes on; the command again does the rest, and restarts no broker twice."""
    second, third = machines.all[1:]
    second.become("held-up")
    command = begun(machines)
    wait_until(lambda: second.restarts == 1, "the second restart has begun")
    command.send_signal(number)
    if number is signal.SIGKILL:
        command.wait(60)
    (second.folder / "held-up").unlink()
    _, errors = command.communicate(timeout=60)
    assert command.returncode == code
    assert number is signal.SIGKILL or "then the same command again does the rest" in errors
    wait_until(lambda: second.tracker == PULSARS_OWN_TRACKER, "the second restart has ended")
    assert (third.restarts, third.tracker) == (0, TRACKER_FACTORY)
    done = asked(machines)
    assert done.returncode == 0, done.stderr
    assert_detached(machines)


def test_an_interrupt_names_the_broker_that_is_not_up_again() -> None:
    told = _interrupted(InterruptedRunError("detach-all", signal.SIGINT), "b:80")
    assert str(told) == "interrupted: wait until b:80 is up again; then the same command again does the rest"
    assert told.exit_code == 130


def way_of(machines: Machines, wait_s: float, count: int | None = None) -> WayBack:
    over = OverSsh([str(machines.bin / "ssh")], "tidegate", "/opt/pulsar", "pulsar-broker", sudo=True)
    admin = ClusterAdmin(machines.url, RestClient())
    return WayBack(admin, over, lambda _: None, lambda _: None, wait_s=wait_s, count=count)


@pytest.mark.parametrize(
    ("state", "said"),
    [("ill", "is not healthy 1 s after its restart"), ("other-home", "runs Tidegate's tracker")],
)
def test_the_others_stay_as_they_are_if_one_does_not_come_back(
    machines: Machines, state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", machines.environment["PATH"])
    first, second, third = machines.all
    second.become(state)
    way = way_of(machines, wait_s=1)
    way.check()
    with pytest.raises(AttachError, match=said):
        way.go()
    assert first.tracker == PULSARS_OWN_TRACKER
    assert (third.tracker, third.restarts) == (TRACKER_FACTORY, 0)


def test_a_broker_that_is_down_is_started_if_it_is_named(machines: Machines) -> None:
    last = machines.all[2]
    last.become("down")
    assert asked(machines).returncode == 0
    assert (last.restarts, last.tracker) == (0, TRACKER_FACTORY)
    assert asked(machines, "--broker", last.name).returncode == 0
    assert_detached(machines)


def test_one_that_is_down_has_the_first_turn(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one is away at a time."""
    monkeypatch.setenv("PATH", machines.environment["PATH"])
    first, second, third = machines.all
    third.become("down")
    third.become("ill")
    way = way_of(machines, wait_s=1)
    way.check([first.name, third.name])
    with pytest.raises(AttachError, match="is not healthy 1 s after its restart"):
        way.go()
    assert way.restarting == third.name
    assert (first.restarts, second.restarts, third.restarts) == (0, 0, 1)


def test_an_active_broker_without_an_answer_ends_it_before_any_change(machines: Machines) -> None:
    """As with a wrong port, or while it starts."""
    second = machines.all[1]
    second.become("silent")
    assert_one_line(asked(machines), f"{second.name} is one of the active brokers, and does not answer", 1)
    assert_untouched(machines)


def test_a_second_run_waits_for_the_broker_that_the_first_has_restarted(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", machines.environment["PATH"])
    first, second, _ = machines.all
    first.become("ill")
    for _ in range(2):
        way = way_of(machines, wait_s=1)
        way.check()
        with pytest.raises(AttachError, match=f"{first.name} is not healthy"):
            way.go()
        assert (first.restarts, first.tracker) == (1, PULSARS_OWN_TRACKER)
        assert (second.restarts, second.tracker) == (0, TRACKER_FACTORY)


def test_a_process_that_a_hook_leaves_behind_is_not_waited_for(machines: Machines) -> None:
    first = machines.all[0]
    first.become("background")
    begun_s = time.monotonic()
    done = asked(machines, "--hook", str(machines.bin / "hook"))
    took_s = time.monotonic() - begun_s
    os.kill(int((first.folder / "background").read_text()), signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    assert_detached(machines)
    assert took_s < 60


def test_a_hook_takes_the_place_of_ssh(machines: Machines) -> None:
    done = asked(machines, "--hook", str(machines.bin / "hook"), "--ssh", "nothing")
    assert done.returncode == 0, done.stderr
    assert_detached(machines)


@pytest.mark.parametrize("name", ["-oProxyCommand=x:80", "a b:80", "a;b:80", "a", "a:80\n", "[::1;]:80"])
def test_a_broker_cannot_name_itself_as_an_option_or_a_command(machines: Machines, name: str) -> None:
    machines.all[0].name = name
    url = f"http://{machines.all[1].name}"
    assert_one_line(asked(machines, "--admin-url", url), "is no broker: write it as HOST:PORT", 2)
    assert_untouched(machines)


def test_a_token_that_may_not_look_is_said(machines: Machines) -> None:
    machines.all[0].refuses = True
    assert_one_line(asked(machines), "token of a superuser", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--unit", "--now"),
        ("--pulsar-home", "-x"),
        ("--hook", "'"),
        ("--ssh", " "),
        ("--admin-url", "ftp://x"),
        ("--count", "0"),
    ],
)
def test_wrong_usage_is_one_line_and_2(arguments: tuple[str, ...]) -> None:
    assert_one_line(run("detach-all", *arguments), "", 2)


def test_brokers_with_tls_have_the_port_of_the_url() -> None:
    admin = ClusterAdmin("https://a:8443", RestClient())
    assert admin._url("b.example:8080") == "https://b.example:8443"
    with pytest.raises(ConfigError):
        WayBack(admin, OverSsh([], "", "", "", sudo=False), print, print).check(["no broker"])
