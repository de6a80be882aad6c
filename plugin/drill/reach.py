"""Tests that a port answers where a client is to connect."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from tidegate.plugin.errors import UserError

_TIMEOUT_S = 1.0
_PORT, _TLS_PORT = 6650, 6651


class UnreachableError(UserError):
    """No port answers there."""


def reach(service_url: str) -> None:
    """Raise ``UnreachableError`` unless a port answers: the client itself would retry for longer.

    ``service_url``: ``pulsar://`` or ``pulsar+ssl://``, with one or several addresses.
    """
    scheme, _, places = service_url.partition("://")
    for place in places.split(","):
        # An invalid port is a ValueError.
        with contextlib.suppress(OSError, ValueError):
            address = urlsplit(f"{scheme}://{place}")
            port = address.port or (_TLS_PORT if scheme == "pulsar+ssl" else _PORT)
            socket.create_connection((address.hostname or "", port), _TIMEOUT_S).close()
            return
    raise UnreachableError(f"no broker answers on {service_url}")
