"""``tidegate verify``: an index against its topic, position by position."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidegate.pipeline.commands import common
from tidegate.pipeline.commands import rebuild as shared
from tidegate.pipeline.rebuild.options import ENTRIES_PER_TASK
from tidegate.pipeline.topic.reader import ReadFrom

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


def verify(  # noqa: PLR0917 the flags
    topic: shared.Topic,
    subscription: shared.Subscription,
    admin_url: shared.AdminUrl,
    socket: shared.Socket = None,
    json_output: common.Json = False,
    repair: Annotated[bool, typer.Option("--repair", help="Put the index right.")] = False,
    dry_run: shared.DryRun = False,
    service_url: shared.ServiceUrl = None,
    token_file: shared.TokenFile = None,
    tls_ca_file: shared.TlsCaFile = None,
    tls_cert_file: shared.TlsCertFile = None,
    tls_key_file: shared.TlsKeyFile = None,
    read_from: shared.From = ReadFrom.AUTO,
    work: shared.Work = None,
    entries_per_task: shared.PerTask = ENTRIES_PER_TASK,
    master: common.Master = "local[*]",
    conf: common.Conf = None,
    package: common.Package = None,
    file: common.Files = None,
) -> None:
    """Compare an index with its topic, while broker and daemon run. Exit code 1 if they differ."""
    options = shared.options_of(
        "verify",
        topic,
        subscription,
        admin_url=admin_url,
        socket=socket,
        service_url=service_url,
        files=(token_file, tls_ca_file, tls_cert_file, tls_key_file),
        read_from=read_from,
        work=work,
        entries_per_task=entries_per_task,
    ).model_copy(update={"repair": repair, "dry_run": dry_run})
    spark = common.spark_settings(master, conf, package, file)
    result, exit_code = common.run_job("verify", options.model_dump(mode="json"), spark)
    if json_output:
        common.print_json(result)
    elif dry_run:
        shared.show_plan(result)
    else:
        _show(result)
    raise typer.Exit(exit_code)


def _show(result: dict[str, Any]) -> None:
    for one in result["subscriptions"]:
        shared.say(f"{one['topic']} {one['subscription']}: {one['checked']:,} delayed messages checked")
        for kind, words in _KINDS.items():
            if one[kind]:
                some = ", ".join(one["examples"][kind][:_SHOWN])
                shared.say(f"  {one[kind]:,} {kind.replace('_', ' ')} ({words}): {some}")
        if "repaired" in one:
            shared.say(f"  {one['repaired']:,} put right")
        elif not any(one[kind] for kind in _KINDS):
            shared.say("  the index has what the topic has")
