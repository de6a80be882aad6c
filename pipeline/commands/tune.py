"""``tidegate tune``: the slice width that fits a traffic."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.pipeline.commands import common
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.parts import check_parts
from tidegate.pipeline.job.view import make_view
from tidegate.pipeline.topic.access import check_no_password
from tidegate.pipeline.tune.options import Topic, TuneOptions, parse_delays
from tidegate.pipeline.tune.record import record
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import milliseconds
from tidegate.plugin.shared.environment import SOCKET_DEFAULT_HELP, own_default_socket
from tidegate.plugin.wire.client import ask_socket

_MIB = 1 << 20
_SCALE_MAX = 1_000
TRACE = "trace.csv"
"""The recording of a daemon, beside the report."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate tune trace.parquet --scale 10")(tune)


@with_groups
def tune(  # noqa: PLR0917 the flags
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="TRACE", help="Parquet or CSV with arrival_ms and deliver_at_ms (file, directory, URL)."
        ),
    ] = None,
    from_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The messages of a topic instead of a trace.")
    ] = None,
    from_daemon: Annotated[
        bool, typer.Option("--from-daemon", help="The messages that reach the running daemon from now on.")
    ] = False,
    record_for: Annotated[
        str, typer.Option("--record", metavar="DURATION", help="With --from-daemon: for how long.")
    ] = "1m",
    subscription: Annotated[
        str | None,
        typer.Option(
            help="With --from-topic: only what it has not acknowledged. "
            "With --from-daemon: TOPIC:SUBSCRIPTION, whose messages are recorded [default: all]."
        ),
    ] = None,
    service_url: Annotated[str | None, typer.Option(help="pulsar://HOST:6650, for --from-topic.")] = None,
    admin_url: Annotated[str | None, typer.Option(help="http://HOST:8080, for --from-topic.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token for both.")] = None,
    tls_ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust.")] = None,
    scale: Annotated[float, typer.Option(help="Multiply the traffic.")] = 1.0,
    delays: Annotated[
        str | None, typer.Option(metavar="MIX", help="Replace the delays, as in 80%:30m,20%:1h-24h.")
    ] = None,
    staging_mib: Annotated[int, typer.Option(help="The daemon's staging_bytes, in MiB.")] = 32,
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("run/tune"),
    apply_to: Annotated[
        str | None,
        typer.Option("--apply", metavar="TOPIC:SUBSCRIPTION", help="Set the width at the running daemon."),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            envvar="TIDEGATE_SOCKET",
            help=f"The daemon's Unix socket, for --from-daemon and --apply [default: {SOCKET_DEFAULT_HELP}].",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the trace and print the plan.")] = False,
    json_output: common.Json = False,
    *,
    spark: common.Spark,
) -> None:
    """Recommend a slice width from a trace.

    Tells what each width would cost.
    """
    if [trace is not None, from_topic is not None, from_daemon].count(True) != 1:
        raise OptionError("say which trace: a file, --from-topic TOPIC, or --from-daemon")
    if not 0 < scale <= _SCALE_MAX:
        raise OptionError(f"--scale must be more than 0 and at most {_SCALE_MAX:,}, it is {scale:g}")
    if staging_mib < 1:
        raise OptionError(f"--staging-mib must be 1 or more, it is {staging_mib}")
    if dry_run and from_daemon:
        raise OptionError("--dry-run looks at a trace that is there: leave out --from-daemon")
    seconds = _seconds(record_for)
    options = TuneOptions(
        trace=None if trace is None else common.absolute(trace),
        topic=None
        if from_topic is None
        else _topic(from_topic, subscription, service_url, admin_url, token_file, tls_ca_file),
        scale=scale,
        delays=() if delays is None else parse_delays(delays),
        staging_bytes=staging_mib * _MIB,
        report=str(report.absolute()),
        dry_run=dry_run,
    )
    settings = spark.settings()
    if apply_to is not None:
        # Check before the work that the daemon knows the subscription.
        ask_socket(socket or own_default_socket(), {"what": "width", "subscription": apply_to})
    if trace is not None:
        common.check_there("the trace", trace, settings)
        common.check_rows("the trace", trace)
    if not dry_run:
        common.check_writable(report)
    if from_daemon:
        check_parts(os.environ)
        path = report.absolute() / TRACE
        with make_view() as view:
            found = record(socket or own_default_socket(), subscription, seconds, path, view.note)
            seen = counted(found.seen, "message")
            view.note(f"{found.entries:,} of {seen}: {path} (--scale {found.stride})")
        options = options.model_copy(update={"trace": str(path), "scale": scale * found.stride})
    result, exit_code = common.run_job("tune", options.model_dump(mode="json"), settings)
    if apply_to is not None and not dry_run:
        width_ms = result["recommended"]["width_ms"]
        result["applied"] = ask_socket(
            socket or own_default_socket(),
            {"what": "width", "subscription": apply_to, "width_ms": width_ms},
        )
    if json_output:
        common.print_json(result)
    elif dry_run:
        typer.echo(
            f"{counted(result['entries'], 'message')} within {result['span_ms'] / 1_000:,.0f} s; "
            f"widths to compare: {', '.join(result['widths'])}"
        )
    else:
        _show(result, apply_to)
    raise typer.Exit(exit_code)


def _seconds(text: str) -> float:
    try:
        return milliseconds(text) / 1_000
    except ValueError as error:
        raise OptionError(f"--record {text[:40]}: {error}") from error


def _topic(  # noqa: PLR0917 the flags
    topic: str,
    subscription: str | None,
    service_url: str | None,
    admin_url: str | None,
    token_file: Path | None,
    tls_ca_file: Path | None,
) -> Topic:
    if service_url is None or admin_url is None:
        raise OptionError("--from-topic needs --service-url and --admin-url")
    check_no_password("--service-url", service_url)
    check_no_password("--admin-url", admin_url)
    told = {
        "topic": topic,
        "subscription": subscription,
        "service_url": service_url,
        "admin_url": admin_url,
        "token_file": None if token_file is None else str(token_file.absolute()),
        "tls_ca_file": None if tls_ca_file is None else str(tls_ca_file.absolute()),
    }
    return Topic(options={name: value for name, value in told.items() if value is not None})


def _show(result: dict[str, Any], applied: str | None) -> None:
    console = Console()
    best = result["recommended"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("width", "memory", "in slices", "blocks", "spills", "at a boundary", "recovery", "cost")
    for name in columns:
        table.add_column(name, justify="left" if name == "width" else "right")
    for one in result["candidates"]:
        table.add_row(
            one["width"],
            f"{one['memory_bytes'] / _MIB:,.1f} MiB",
            f"{one['bytes'] / _MIB:,.1f} MiB",
            f"{one['blocks']:,}",
            f"{one['spills']:,}",
            f"{one['boundary_ms']:,.1f} ms",
            f"{one['recovery_ms']:,.0f} ms",
            f"{one['cost']:.2g}",
            style="bold green" if one["width_ms"] == best["width_ms"] else "",
        )
    common.print_table(table)
    console.print(f"recommended: {best['width']}: {best['reason']}", highlight=False, soft_wrap=True)
    for one in result["calibration"]["runs"]:
        errors = ", ".join(
            f"{name.split('_')[0]} {error:+.0f} %" for name, error in one["error_percent"].items()
        )
        told = f"model at {one['predicted']['width']} against the real index: {errors}"
        console.print(told, highlight=False, soft_wrap=True)
    console.print(f"{result['seconds']:.1f} s{common.engine_words(result)}", highlight=False)
    if applied is not None:
        console.print(f"applied to {applied}", markup=False, highlight=False)
    if result.get("report"):
        console.print(f"report: {result['report']}", markup=False, highlight=False, soft_wrap=True)
