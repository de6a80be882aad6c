"""``tidegate verify``: an index against its topic, position by position."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.pipeline.commands import common
from tidegate.pipeline.commands import rebuild as shared
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.rebuild import orphans
from tidegate.pipeline.rebuild.options import ENTRIES_PER_TASK, RebuildOptions
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import Socket
from tidegate.plugin.shared.counts import counted

_KINDS = {
    "missing": "due to be held and not held: read by the dispatcher instead",
    "extra": "held, and no delayed message of the topic",
    "wrong_time": "held for another time than the message's",
    "acknowledged_but_held": "held, and acknowledged in the cursor",
}
_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(
        epilog="Example: tidegate verify persistent://public/default/orders billing "
        "--admin-url http://127.0.0.1:8080"
    )(verify)


@with_groups
def verify(  # noqa: PLR0917 the flags
    topic: shared.Topic,
    subscription: shared.Subscription,
    admin_url: shared.AdminUrl,
    socket: Socket = None,
    json_output: common.Json = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair the index; delete the ledgers found by --logs.")
    ] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Only look for ledgers no longer needed.")] = False,
    index_log: Annotated[
        str | None, typer.Option(metavar="URL", help="With --logs: where the brokers keep them, if at a URL.")
    ] = None,
    bookie_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --logs: http://HOST:8000 of a bookie's HTTP server."),
    ] = None,
    dry_run: shared.DryRun = False,
    *,
    backlog: shared.Backlog,
    entries_per_task: shared.PerTask = ENTRIES_PER_TASK,
    spark: common.Spark,
) -> None:
    """Compare an index with its topic.

    Broker and daemon keep running. Exit codes: 0 they agree, 1 they differ, 2 it could not be done, 3 no
    daemon answers.
    """
    options = shared.options_of(
        "verify",
        topic,
        subscription,
        admin_url=admin_url,
        socket=socket,
        backlog=backlog,
        entries_per_task=entries_per_task,
    ).model_copy(update={"repair": repair, "dry_run": dry_run})
    if logs:
        raise typer.Exit(_look_for_orphans(options, index_log, bookie_url, json_output))
    settings = spark.settings()
    result, exit_code = common.run_job("verify", options.model_dump(mode="json"), settings)
    if json_output:
        common.print_json(result)
    elif dry_run:
        shared.show_plan(result)
    else:
        _show(result)
    raise typer.Exit(exit_code)


def _look_for_orphans(
    options: RebuildOptions, index_log: str | None, bookie_url: str | None, json_output: bool
) -> int:
    homes: list[orphans.Ledgers] = []
    if index_log is not None:
        homes.append(orphans.ObjectLedgers(index_log))
    if bookie_url is not None:
        homes.append(orphans.BookieLedgers(bookie_url))
    if not homes:
        raise OptionError("--logs needs to know where they are: give --index-log, --bookie-url or both")
    with Admin(options.admin_url, options.access) as admin:
        topic = TopicName.parse(options.topic)
        found = orphans.find_orphans(
            lambda: orphans.Named(admin, Path(options.socket)), homes, topic, options.subscription, time.sleep
        )
    removed = options.repair and not options.dry_run
    for home, one in found if removed else ():
        home.remove(one)
    if json_output:
        common.print_json({"orphans": [one._asdict() for _, one in found], "removed": removed})
    else:
        for _, one in found:
            shared.say(
                f"{one.topic} {one.subscription}: ledger {one.ledger_id} ({one.component}) in {one.home} "
                "is needed by nobody"
            )
        done = ", and gone now" if removed and found else ""
        shared.say(f"{counted(len(found), 'ledger', 'are')} needed by nobody{done}")
    return 1 if found and not removed else 0


def _show(result: dict[str, Any]) -> None:
    for one in result["subscriptions"]:
        shared.say(
            f"{one['topic']} {one['subscription']}: {counted(one['checked'], 'delayed message')} checked"
        )
        for kind, words in _KINDS.items():
            if one[kind]:
                some = ", ".join(one["examples"][kind][:_SHOWN])
                shared.say(f"  {one[kind]:,} {kind.replace('_', ' ')} ({words}): {some}")
        if "repaired" in one:
            shared.say(f"  {one['repaired']:,} put right")
        elif not any(one[kind] for kind in _KINDS):
            shared.say("  the index has what the topic has")
