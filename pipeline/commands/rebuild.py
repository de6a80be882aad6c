"""``tidegate rebuild``: an index from its topic, which the running daemon takes in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tidegate.pipeline.commands import common
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.rebuild.options import ENTRIES_PER_TASK, RebuildOptions
from tidegate.pipeline.topic.cluster import ReadFrom
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import Socket
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.environment import own_default_socket
from tidegate.plugin.shared.shown import one_line

WORK = Path("run/rebuild")
Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/name; * for several of a namespace."),
]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Its name; * for several.")]
AdminUrl = Annotated[str, typer.Option(help="http://HOST:8080 or https://HOST:8443.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the planned reads, and do nothing.")]
PerTask = Annotated[int, typer.Option(help="How many entries one task reads, about.")]


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The way to read a backlog, and the place of its parts: a group of ``plugin.commands.groups``."""

    service_url: Annotated[
        str | None, typer.Option(help="pulsar://HOST:6650 [default: the admin API says it].")
    ] = None
    token_file: Annotated[Path | None, typer.Option(help="File with the token for both.")] = None
    tls_ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust.")] = None
    tls_cert_file: Annotated[Path | None, typer.Option(help="The client's own certificate.")] = None
    tls_key_file: Annotated[Path | None, typer.Option(help="Its key.")] = None
    read_from: Annotated[ReadFrom, typer.Option(help="Straight from the bookies, or through the broker.")] = (
        ReadFrom.AUTO
    )
    work: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL", help="Folder for parts and slice files of jobs; a killed job goes on there."
        ),
    ] = None
    any_daemon: Annotated[
        bool, typer.Option("--any-daemon", help="Also if the topic's broker seems to be another daemon's.")
    ] = False


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(
        epilog="Example: tidegate rebuild persistent://public/default/orders billing "
        "--admin-url http://127.0.0.1:8080"
    )(rebuild)


@with_groups
def rebuild(
    topic: Topic,
    subscription: Subscription,
    admin_url: AdminUrl,
    *,
    socket: Socket = None,
    json_output: common.Json = False,
    dry_run: DryRun = False,
    backlog: Backlog,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the slice files where they are.")] = False,
    entries_per_task: PerTask = ENTRIES_PER_TASK,
    spark: common.Spark,
) -> None:
    """Make a subscription's index from its topic's backlog.

    Broker and daemon keep running. Exit codes: 0 the index has what the topic has, 2 it could not be
    done, 3 no daemon answers.
    """
    options = options_of(
        "rebuild",
        topic,
        subscription,
        admin_url=admin_url,
        socket=socket,
        backlog=backlog,
        entries_per_task=entries_per_task,
    ).model_copy(update={"keep": keep, "dry_run": dry_run})
    settings = spark.settings()
    result, exit_code = common.run_job("rebuild", options.model_dump(mode="json"), settings)
    if not dry_run:
        result["entries_per_s"] = round(result["entries"] / max(result["seconds"], 0.001), 1)
    if json_output:
        common.print_json(result)
    elif dry_run:
        show_plan(result)
    else:
        _show(result)
    raise typer.Exit(exit_code)


def options_of(
    command: str,
    topic: str,
    subscription: str,
    *,
    admin_url: str,
    socket: Path | None,
    backlog: Backlog,
    entries_per_task: int,
) -> RebuildOptions:
    """The options as typed, checked. Raises ``OptionError``."""
    name = TopicName.parse(topic)
    if not subscription:
        raise OptionError("SUBSCRIPTION is empty: name one, or * for all")
    if entries_per_task < 1:
        raise OptionError(f"--entries-per-task must be 1 or more, it is {entries_per_task}")
    return RebuildOptions(
        topic=str(name),
        subscription=subscription,
        admin_url=admin_url,
        socket=str((socket or own_default_socket()).absolute()),
        work=common.absolute(backlog.work or str(WORK.parent / command)),
        service_url=backlog.service_url,
        token_file=_absolute(backlog.token_file),
        tls_ca_file=_absolute(backlog.tls_ca_file),
        tls_cert_file=_absolute(backlog.tls_cert_file),
        tls_key_file=_absolute(backlog.tls_key_file),
        read_from=backlog.read_from,
        entries_per_task=entries_per_task,
        any_daemon=backlog.any_daemon,
    )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def say(text: str) -> None:
    """Print a line; it may contain names that clients chose."""
    Console().print(one_line(text), markup=False, highlight=False, soft_wrap=True)


def show_plan(result: dict[str, Any]) -> None:
    """Print the planned reads, and their subscriptions."""
    for one in result["subscriptions"]:
        say(f"{one['topic']} {one['subscription']}")
    say(f"{counted(result['entries'], 'entry')} would be read, by {counted(result['tasks'], 'task')}")


def _show(result: dict[str, Any]) -> None:
    for one in result["stages"]:
        entries = f", {counted(one['entries'], 'entry')}" if "entries" in one else ""
        say(f"{one['name']:8} {one['seconds']:8.1f} s{entries}")
    for one in result["subscriptions"]:
        verdict = (
            "the index has what the topic has"
            if one["matched"]
            else f"{one['missing']:,} missing, {one['extra']:,} too many, "
            f"{one['acknowledged_but_held']:,} acknowledged but held"
        )
        say(f"{one['topic']} {one['subscription']}: {counted(one['entries'], 'entry')}, {one['added']:,} new")
        say(f"  {verdict}")
        if one["let_go"]:
            say(f"  {one['let_go']:,} held and acknowledged: let go")
    entries = counted(result["entries"], "entry")
    say(f"{entries} in {result['seconds']:.1f} s, {result['entries_per_s']:,.0f}/s")
