"""``tidegate serve``: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.plugin.shared.environment import SOCKET_DEFAULT_HELP


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(
        epilog="Example: tidegate serve --data /var/lib/tidegate --socket /run/tidegate/tidegate.sock"
    )(serve)


def serve(  # noqa: PLR0917 the flags
    data: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Data directory; made if it is missing [required, unless TIDEGATE_DATA or --config has it].",
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(readable=False, help=f"Unix socket for the broker [default: {SOCKET_DEFAULT_HELP}]."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="IP:PORT", help="Serve /metrics, /healthz, /readyz and /status here [default: nowhere]."
        ),
    ] = None,
    http_token_file: Annotated[
        Path | None, typer.Option(readable=False, help="File with the bearer token; needed off loopback.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(readable=False, help="TOML file with settings; flags and TIDEGATE_* win.")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(help="auto (human on a terminal, else json), human or json [default: auto]."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error [default: info].")
    ] = None,
) -> None:
    """Run the daemon beside a broker until SIGTERM or Ctrl-C.

    Each setting may also come from the environment (TIDEGATE_DATA) or the file of --config (data = …).
    There are more settings: see docs/operations.md. Exit codes: 0 stopped cleanly, 1 it cannot start or go
    on, 2 a setting is wrong or missing.
    """
    # Imported here, so that --help does not load the daemon.
    from tidegate.plugin.commands.daemon import run_daemon  # noqa: PLC0415

    flags = {
        "data": data,
        "socket": socket,
        "http": http,
        "http_token_file": http_token_file,
        "log_format": log_format,
        "log_level": log_level,
    }
    run_daemon(flags, config)
