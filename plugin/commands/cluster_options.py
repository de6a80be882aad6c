"""Options of the commands that ask all brokers of a cluster."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Annotated

import typer

from tidegate.plugin.attach.way_back import ClusterAdmin
from tidegate.plugin.client.calls import base_of
from tidegate.plugin.commands.options import TlsCaFile, Token, TokenFile, one_of
from tidegate.plugin.daemon.settings import read_token
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.shared.rest import RestClient


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The brokers' web services: a group of ``groups``."""

    context: typer.Context
    admin_url: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="TIDEGATE_ADMIN_URL", help="The web service of any broker that is up."
        ),
    ] = "http://127.0.0.1:8080"
    token: Token = None
    token_file: TokenFile = None
    tls_ca_file: TlsCaFile = None

    def admin(self) -> ClusterAdmin:
        """The brokers' web services. Raises ``ConfigError``."""
        token, token_file = one_of(self.context, "token", self.token, "token_file", self.token_file)
        if token_file is not None:
            token = read_token(token_file, "--token-file")
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ConfigError("the token must be one line of printable ASCII")
        base = base_of(self.admin_url)
        try:
            trusted = None if self.tls_ca_file is None else str(self.tls_ca_file)
            tls = ssl.create_default_context(cafile=trusted)
        except OSError as error:
            raise ConfigError(
                f"cannot read certificates from {self.tls_ca_file}: {error.strerror}"
            ) from error
        return ClusterAdmin(base, RestClient(lambda: token, tls))
