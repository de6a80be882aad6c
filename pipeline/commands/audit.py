"""``tidegate audit``: a comparison of sent and received messages.

Exit codes: 0 nothing was lost or early, 1 something was, 2 no verdict.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.pipeline.audit.options import AuditOptions, Format, Pulsar, Record, StreamOptions
from tidegate.pipeline.commands import common
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.topic.access import check_no_password
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import milliseconds
from tidegate.plugin.shared.moments import moment

_DEFAULT_REPORT = Path("run/audit")
_EXAMPLE = "Example: tidegate audit --sent sent.parquet --received 'received/*.parquet' --report run/audit"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=_EXAMPLE)(audit)


@with_groups
def audit(  # noqa: PLR0917 the flags
    sent: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="What was sent: Parquet, CSV or JSON lines (file, directory, pattern, URL), or the topic "
            "itself as persistent://…",
        ),
    ],
    received: Annotated[
        str,
        typer.Option(
            metavar="WHERE", help="Received messages: the same, or a topic with JSON rows as messages."
        ),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", help="parquet, csv or json, where the name does not tell [default: parquet]."
        ),
    ] = None,
    subscription: Annotated[
        list[str] | None,
        typer.Option(help="A subscription that should have received everything; repeatable [default: all]."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Messages due or sent later may be missing: 2026-11-21T08:00Z, or ms since 1970.",
        ),
    ] = None,
    slice_width: Annotated[str, typer.Option("--slice", help="How wide slices are in the report.")] = "1h",
    gap: Annotated[str, typer.Option(help="Shortest gap: no delivery while something is due.")] = "5s",
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = _DEFAULT_REPORT,
    offending: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the offending messages go [default: REPORT/offending]."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check both records and print the plan.")
    ] = False,
    json_output: common.Json = False,
    service_url: Annotated[str | None, typer.Option(help="pulsar://HOST:6650, for topics.")] = None,
    admin_url: Annotated[str | None, typer.Option(help="http://HOST:8080, for topics.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token for both.")] = None,
    tls_ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust.")] = None,
    tls_cert_file: Annotated[Path | None, typer.Option(help="The client's own certificate.")] = None,
    tls_key_file: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Go on beside production, until ended.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="With --stream: where it goes on after a restart.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="With --stream: only the present records.")] = False,
    trigger: Annotated[str, typer.Option(help="With --stream: time between two looks.")] = "10s",
    watermark: Annotated[
        str, typer.Option(help="With --stream: how much later than others a record may come.")
    ] = "1m",
    grace: Annotated[
        str, typer.Option(help="With --stream: so long after it was due a message is lost.")
    ] = "1m",
    forget: Annotated[str, typer.Option(help="With --stream: how long after that repeats are seen.")] = "10m",
    metrics: Annotated[
        str | None, typer.Option(metavar="IP:PORT", help="With --stream: serve Prometheus gauges here.")
    ] = None,
    *,
    spark: common.Spark,
) -> None:
    """Count lost, early, late and repeated messages.

    Exit codes: 0 nothing was lost or early, 1 something was, 2 it could not be judged.
    """
    pulsar = _pulsar(service_url, admin_url, token_file, tls_ca_file, tls_cert_file, tls_key_file)
    streaming = None
    if stream:
        if dry_run:
            raise OptionError("--dry-run looks at whole records: leave out --stream")
        if checkpoint is None:
            raise OptionError("--stream needs --checkpoint DIR, where it goes on after a restart")
        streaming = StreamOptions(
            checkpoint=common.absolute(checkpoint),
            once=once,
            trigger_s=_ms("--trigger", trigger) / 1000,
            watermark_ms=_ms("--watermark", watermark),
            grace_ms=_ms("--grace", grace),
            forget_ms=_ms("--forget", forget),
            metrics=_address(metrics),
        )
    elif checkpoint or once or metrics:
        raise OptionError("--checkpoint, --once and --metrics go with --stream")
    options = AuditOptions(
        sent=_record(sent, format_name, pulsar),
        received=_record(received, format_name, pulsar),
        pulsar=pulsar,
        subscriptions=tuple(subscription or ()),
        until_ms=None if until is None else _time(until),
        slice_width_ms=_ms("--slice", slice_width),
        gap_ms=_ms("--gap", gap),
        report=str(report.absolute()),
        offending=common.absolute(offending) if offending else str(report.absolute() / "offending"),
        dry_run=dry_run,
        stream=streaming,
    )
    settings = spark.settings()
    if stream:
        for one in (options.sent, options.received):
            if one.format is not Format.TOPIC and "://" not in one.where and Path(one.where).is_file():
                raise OptionError(
                    f"--stream follows a directory that files are added to: {one.where} is a file"
                )
    else:
        common.check_there("sent", options.sent.where, settings)
        common.check_there("received", options.received.where, settings)
        common.check_rows("sent", options.sent.where)
        common.check_rows("received", options.received.where, may_be_none=True)
    if not dry_run:
        common.check_writable(report)
    result, exit_code = common.run_job("audit", options.model_dump(mode="json"), settings)
    if json_output:
        common.print_json(result)
    else:
        _show(result)
    raise typer.Exit(exit_code)


def _pulsar(service_url: str | None, admin_url: str | None, *files: Path | None) -> Pulsar | None:
    if service_url is None and admin_url is None:
        return None
    if service_url is None or admin_url is None:
        raise OptionError("a topic is read with both --service-url and --admin-url")
    names = ("token_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
    paths = {name: str(path.absolute()) for name, path in zip(names, files, strict=True) if path is not None}
    check_no_password("--service-url", service_url)
    check_no_password("--admin-url", admin_url)
    found = Pulsar(service_url=service_url, admin_url=admin_url, **paths)
    found.access().token()
    return found


def _record(where: str, format_name: str | None, pulsar: Pulsar | None) -> Record:
    record = Record.of(common.absolute(where), format_name)
    if record.format is Format.TOPIC and pulsar is None:
        raise OptionError(f"{where} is a topic: give --service-url and --admin-url")
    return record


def _ms(flag: str, text: str) -> int:
    try:
        value = milliseconds(text)
    except ValueError as error:
        raise OptionError(f"{flag}: {error}") from error
    if value < 1:
        raise OptionError(f"{flag} must be longer than nothing")
    return value


def _time(text: str) -> int:
    try:
        return moment(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        # Seconds taken for milliseconds would be before all messages: none would count as lost.
        raise OptionError(f"--until: {error}") from error


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise OptionError(f"--metrics {text[:40]!r}: write IP:PORT, as in 127.0.0.1:9465")
    return host, int(port)


def _show(result: dict[str, Any]) -> None:
    console = Console()
    if result.get("dry_run"):
        console.print(
            f"{counted(result['sent_rows'], 'row')} of sent, {result['received_rows']:,} of received, "
            f"subscriptions {', '.join(result['subscriptions'])}; nothing was judged",
            markup=False,
            soft_wrap=True,
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("received", "delivered", "lost", "early", "repeated", "unknown", "out_of_order", "pending")
    table.add_column("subscription")
    for name in (*columns, "late p50", "p99", "max"):
        table.add_column(name.replace("_", " "), justify="right")
    for name, one in result["subscriptions"].items():
        late = one["lateness_ms"]
        cells = [_judged(column, one[column]) for column in columns]
        times = [f"{late[key]:,.0f} ms" if late["count"] else "" for key in ("p50", "p99", "max")]
        table.add_row(Text(_printable(name) or "(none)"), *cells, *times)
    common.print_table(table)
    verdict = "nothing was lost or early" if result["passed"] else "messages were lost or early"
    console.print(
        Text(
            f"{result['sent']:,} sent; {verdict}; {result['seconds']:.1f} s{common.engine_words(result)}",
            "green" if result["passed"] else "red",
        )
    )
    for key in ("report", "offending"):
        if result.get(key):
            console.print(f"{key}: {result[key]}", markup=False, highlight=False, soft_wrap=True)


def _judged(column: str, count: int) -> Text:
    bad = column in ("lost", "early") and count
    return Text(f"{count:,}", "bold red" if bad else "")


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "�" for one in text[:100])
