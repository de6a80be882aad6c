"""Arguments and options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tidegate.plugin.errors import ConfigError
from tidegate.plugin.shared.environment import SOCKET_DEFAULT_HELP, own_default_socket

if TYPE_CHECKING:
    from tidegate.plugin.client.reaches import Reach
    from tidegate.plugin.shared.rest import RestClient

T = TypeVar("T")
U = TypeVar("U")
TIMEOUT_S = 120.0

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="persistent://public/default/ may be left out; of a partitioned one all partitions are meant.",
    ),
]
Socket = Annotated[
    Path | None,
    typer.Option(
        readable=False,
        envvar="TIDEGATE_SOCKET",
        help=f"The daemon's Unix socket [default: {SOCKET_DEFAULT_HELP}].",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        envvar="TIDEGATE_TOKEN",
        help="Bearer token for --admin-url. Other users can read it in the list of processes: "
        "rather set TIDEGATE_TOKEN, or give --token-file.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        readable=False,
        envvar="TIDEGATE_TOKEN_FILE",
        help="File with the token, readable by its owner only.",
    ),
]
TlsCaFile = Annotated[
    Path | None,
    typer.Option(readable=False, help="Certificates to trust at --admin-url, instead of the system's."),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="As in tidegate status.")]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The daemon or broker to ask, and the form of the answer: a group of ``groups``."""

    context: typer.Context
    socket: Socket = None
    admin_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TIDEGATE_ADMIN_URL",
            help="Ask over HTTP instead: a broker, as in http://HOST:8080, or the daemon's --http.",
        ),
    ] = None
    token: Token = None
    token_file: TokenFile = None
    tls_ca_file: TlsCaFile = None
    json_output: JsonOutput = False

    def reach(self) -> Reach:
        """The way to ask: HTTP with a URL, else the daemon's socket. Raises ``UserError``.

        A flag beats a variable; two flags, or two variables, that exclude each other are refused.
        """
        context = self.context
        socket, admin_url = one_of(context, "socket", self.socket, "admin_url", self.admin_url)
        token, token_file = one_of(context, "token", self.token, "token_file", self.token_file)
        if admin_url is None:
            for name in ("token", "token_file", "tls_ca_file"):
                if _is_flag(context, name):
                    raise ConfigError(f"{_option(name)} is for HTTP: give --admin-url, too")
            from tidegate.plugin.client.socket_reach import SocketReach  # noqa: PLC0415

            return SocketReach(socket or own_default_socket(), TIMEOUT_S)
        from tidegate.plugin.client.http_reach import HttpReach  # noqa: PLC0415 it takes a tenth of a second
        from tidegate.plugin.daemon.settings import read_token  # noqa: PLC0415

        return HttpReach(
            admin_url,
            token if token_file is None else read_token(token_file, "--token-file"),
            TIMEOUT_S,
            self.tls_ca_file,
        )


def rest_client(
    context: typer.Context, token: str | None, token_file: Path | None, tls_ca_file: Path | None
) -> RestClient:
    """A client of a web service with the credentials of these options. Raises ``ConfigError``."""
    import ssl  # noqa: PLC0415

    from tidegate.plugin.daemon.settings import read_token  # noqa: PLC0415
    from tidegate.plugin.shared.rest import RestClient  # noqa: PLC0415

    token, token_file = one_of(context, "token", token, "token_file", token_file)
    if token_file is not None:
        token = read_token(token_file, "--token-file")
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise ConfigError("the token must be one line of printable ASCII")
    try:
        trusted = None if tls_ca_file is None else str(tls_ca_file)
        return RestClient(lambda: token, ssl.create_default_context(cafile=trusted))
    except OSError as error:
        raise ConfigError(f"cannot read certificates from {tls_ca_file}: {error.strerror}") from error


def one_of(
    context: typer.Context, first: str, one: T | None, second: str, other: U | None
) -> tuple[T | None, U | None]:
    """Both values; of a flag and a variable, the flag alone. Raises ``ConfigError``."""
    if one is None or other is None:
        return one, other
    if _is_flag(context, first) == _is_flag(context, second):
        raise ConfigError(f"give {_option(first)} or {_option(second)}, or their variables, not both")
    return (one, None) if _is_flag(context, first) else (None, other)


def _is_flag(context: typer.Context, name: str) -> bool:
    """True if the parameter was typed, not set by a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
