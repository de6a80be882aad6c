"""``tidegate doctor``: everything that an operator would look at first, with a verdict and a remedy each."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.client.calls import base_of
from tidegate.plugin.commands.options import JsonOutput, TlsCaFile, Token, TokenFile, rest_client
from tidegate.plugin.daemon.serve import product_version
from tidegate.plugin.doctor.broker import BrokerAdmin
from tidegate.plugin.doctor.examine import Ask, Places, Report, examine
from tidegate.plugin.doctor.finding import Finding, Verdict
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.environment import SOCKET_DEFAULT_HELP, own_default_socket
from tidegate.plugin.shared.shown import one_line, shown
from tidegate.plugin.wire.client import ask_socket

SCHEMA = 1
_TIMEOUT_S = 30.0


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate doctor /opt/pulsar --admin-url http://127.0.0.1:8080")(doctor)


def doctor(  # noqa: PLR0917 the flags
    context: typer.Context,
    pulsar_home: Annotated[
        Path | None,
        typer.Argument(
            readable=False,
            metavar="[PULSAR_HOME]",
            envvar="PULSAR_HOME",
            help="The directory Pulsar was unpacked into; without it the files are skipped.",
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            envvar="TIDEGATE_SOCKET",
            help=f"The daemon's Unix socket [default: that of PULSAR_HOME, else {SOCKET_DEFAULT_HELP}].",
        ),
    ] = None,
    admin_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TIDEGATE_ADMIN_URL",
            help="A broker's web service, as in http://HOST:8080: also look at clocks, policies and topics.",
        ),
    ] = None,
    token: Token = None,
    token_file: TokenFile = None,
    tls_ca_file: TlsCaFile = None,
    json_output: JsonOutput = False,
) -> None:
    """Look whether all is well, and say what to do.

    Changes nothing. Exit code 0: no fault; 1: a fault; 2: wrong usage.
    """
    admin = None
    if admin_url is not None:
        client = rest_client(context, token, token_file, tls_ca_file)
        admin = BrokerAdmin(base_of(admin_url), client, _now_ms, time.monotonic)
    places = Places(
        home=None if pulsar_home is None else pulsar_home.absolute(),
        socket=socket,
        default_socket=own_default_socket(),
        wheel_version=product_version(),
        clock_ms=_now_ms,
    )
    with known_form():
        report = examine(places, _asking, admin)
    if json_output:
        print(json.dumps(as_json(report), indent=2))
    else:
        for line in lines(report):
            print(line)
    if report.has_fault:
        raise typer.Exit(1)


def as_json(report: Report) -> dict[str, Any]:
    """The report as one object; within a ``schema`` number fields are only added."""
    return {
        "schema": SCHEMA,
        "fault": report.has_fault,
        "versions": report.versions,
        "findings": [asdict(one) for one in report.sorted()],
    }


def lines(report: Report) -> list[str]:
    """The report as text, worst first; names are escaped."""
    said = [line for one in report.sorted() for line in _of_finding(one)]
    counts = Counter(one.verdict for one in report.findings)
    of_verdicts = [counted(counts[one], one) for one in Verdict if one is not Verdict.OK]
    return [*said, ", ".join([*of_verdicts, f"{counts[Verdict.OK]:,} ok"])]


def _of_finding(finding: Finding) -> Iterator[str]:
    names = [shown(one) for one in (finding.topic, finding.subscription) if one is not None]
    about = f"{':'.join(names)}: " if names else ""
    verdict = finding.verdict.upper() if finding.verdict is Verdict.FAULT else finding.verdict
    yield f"{verdict:<8} {finding.check:<12} {about}{one_line(finding.says)}"
    if finding.do:
        yield f"{'':<21} do: {one_line(finding.do)}"


def _asking(path: Path) -> Ask:
    return lambda request: ask_socket(path, request, _TIMEOUT_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
