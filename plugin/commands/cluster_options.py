"""Options of the commands that ask all brokers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tidegate.plugin.attach.way_back import ClusterAdmin
from tidegate.plugin.client.calls import base_of
from tidegate.plugin.commands.options import TlsCaFile, Token, TokenFile, rest_client


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
        base = base_of(self.admin_url)
        return ClusterAdmin(base, rest_client(self.context, self.token, self.token_file, self.tls_ca_file))
