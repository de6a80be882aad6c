"""Whether anybody answers where a client is to connect."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from tidegate.plugin.errors import UserError

_TIMEOUT_S = 1.0
_PORT, _TLS_PORT = 6650, 6651


class UnreachableError(UserError):
    """Nobody answers there."""


def reach(service_url: str) -> None:
    """Raise ``UnreachableError`` unless a port answers: the client itself would wait for ever longer.

    ``service_url``: ``pulsar://`` or ``pulsar+ssl://``, and one or several places.
    """
    scheme, _, places = service_url.partition("://")
    for place in places.split(","):
        # A port that is none is a ValueError.
        with contextlib.suppress(OSError, ValueError):
            address = urlsplit(f"{scheme}://{place}")
            port = address.port or (_TLS_PORT if scheme == "pulsar+ssl" else _PORT)
            socket.create_connection((address.hostname or "", port), _TIMEOUT_S).close()
            return
    raise UnreachableError(f"no broker answers on {service_url}")
