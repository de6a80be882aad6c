"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.plugin.environment import SOCKET_DEFAULT_HELP

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="persistent://public/default/ may be left out; of a partitioned one all partitions are meant.",
    ),
]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="As in tidegate status.")]
Socket = Annotated[
    Path | None,
    typer.Option(
        readable=False,
        envvar="TIDEGATE_SOCKET",
        help=f"The daemon's Unix socket [default: {SOCKET_DEFAULT_HELP}].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
