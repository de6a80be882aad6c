"""``tidegate detach-all``: all brokers of a running cluster back to Pulsar's own tracker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tidegate.plugin.attach.remote import ByHook, OverSsh, words_of
from tidegate.plugin.attach.way_back import Machines, State, WayBack
from tidegate.plugin.commands.cluster_options import ClusterOptions
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import JsonOutput
from tidegate.plugin.commands.running import signals_stop
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.shared.shown import one_line
from tidegate.plugin.shared.stop import InterruptedRunError, Stop

SCHEMA = 1
_BEFORE = (
    "No message is lost. Until a broker's turn Tidegate delays its topics; then Pulsar does, up to a second",
    "early, after reading them again (a million messages in about a minute; due ones wait meanwhile). What",
    "consumers have in their hands may come again, and what only the daemon knew to be acknowledged. Paused",
    "and paced messages leave when due, rescheduled ones at their producers' times.",
)
_AFTER = (
    "Done: none of these brokers runs Tidegate's tracker. A broker that is down is still attached: detach it",
    "there. Next, on each machine: systemctl disable --now tidegate. Its data directory may stay.",
)


@dataclass(frozen=True, kw_only=True)
class Reached(ClusterOptions):
    """The brokers' web services, and the way to their machines: a group of ``groups``."""

    broker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Only this broker, also one that is down; may be repeated [default: all that are up].",
        ),
    ] = None
    pulsar_home: Annotated[
        str, typer.Option(metavar="PATH", help="Where Pulsar is on the brokers' machines.")
    ] = "/opt/pulsar"
    unit: Annotated[str, typer.Option(metavar="NAME", help="The broker's unit there.")] = "pulsar-broker"
    tidegate: Annotated[
        str, typer.Option(metavar="PATH", help="The command there; from Debian's package: tidegate.")
    ] = "/opt/tidegate/bin/tidegate"
    ssh: Annotated[
        str, typer.Option(metavar="COMMAND", help="With your options, as in 'ssh -l ops -J jump'.")
    ] = "ssh"
    sudo: Annotated[bool, typer.Option("--sudo/--no-sudo", help="Become root there with sudo -n.")] = True
    hook: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Instead of ssh: gets check, detach or restart, and HOST:PORT; returns when that is done.",
        ),
    ] = None

    def machines(self) -> Machines:
        """The way to the machines. Raises ``ConfigError``."""
        if self.hook is not None:
            return ByHook(words_of("--hook", self.hook))
        for name, value in (
            ("unit", self.unit),
            ("pulsar-home", self.pulsar_home),
            ("tidegate", self.tidegate),
        ):
            if value.startswith("-") or not value.isprintable():
                raise ConfigError(f"--{name} must not begin with a dash, nor hold control characters")
        ssh = words_of("--ssh", self.ssh)
        return OverSsh(ssh, self.tidegate, self.pulsar_home, self.unit, self.sudo)


@with_groups
def detach_all(
    *,
    reached: Reached,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Restart N brokers and leave the rest; the same command again takes the next N.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Look at every broker and machine, and change nothing."),
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Take a running cluster back to Pulsar's own tracker.

    Broker by broker: detaches its Pulsar home, restarts it, waits until it is healthy and runs another
    tracker. Looks at all of them first, and stops at the first that is not as it should be. It may be
    interrupted at any time; the same command again does the rest. No message is lost. Exit code 1: not all
    are detached, or fewer than --count.
    """
    admin, machines = reached.admin(), reached.machines()
    say = _sayer(sys.stderr if json_output else sys.stdout)
    stop = Stop("detach-all")
    way = WayBack(admin, machines, say, stop.pause, count=count)
    failure: UserError | None = None
    done = False
    with signals_stop(stop):
        try:
            way.check(reached.broker or ())
            for line in _BEFORE:
                say(line)
            if not dry_run:
                way.go()
                done = True
        except InterruptedRunError as error:
            failure = _interrupted(error, way.restarting)
        except UserError as error:
            failure = error
    if json_output:
        print(json.dumps(_as_json(way, dry_run=dry_run, done=done, failure=failure), indent=2))
    if failure is not None:
        raise failure
    for line in _after(way, dry_run=dry_run):
        say(line)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(
        "detach-all", epilog="Example: tidegate detach-all --admin-url http://broker-1:8080 --dry-run"
    )(detach_all)


def _sayer(stream: Any) -> Callable[[str], None]:
    def say(line: str) -> None:
        print(one_line(line), file=stream, flush=True)

    return say


def _after(way: WayBack, *, dry_run: bool) -> Sequence[str]:
    left, many = _left(way), len(way.brokers)
    if dry_run:
        restarts = left - way.later
        return (f"Nothing was changed: {restarts} of {many} brokers would be restarted, one at a time",)
    if not left:
        return _AFTER
    return (
        f"Done: {many - left} of {many} brokers do not run Tidegate's tracker. The other {left} delay by it; "
        "the same command again takes the next",
    )


def _left(way: WayBack) -> int:
    return sum(one.state is not State.OTHER for one in way.brokers)


def _interrupted(error: InterruptedRunError, restarting: str | None) -> UserError:
    first = "no broker is left half-way" if restarting is None else f"wait until {restarting} is up again"
    told = UserError(f"interrupted: {first}; then the same command again does the rest")
    told.exit_code = error.exit_code
    return told


def _as_json(way: WayBack, *, dry_run: bool, done: bool, failure: UserError | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "dry_run": dry_run,
        "done": done,
        "failure": None if failure is None else one_line(str(failure)),
        "left": _left(way) if way.brokers else None,
        "brokers": [
            {"broker": one.name, "tracker": one.tracker, "state": one.state.value} for one in way.brokers
        ],
    }
