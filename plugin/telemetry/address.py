"""The address of the HTTP side, as people write it."""

from __future__ import annotations

import ipaddress


class HttpAddress:
    """``HOST:PORT`` of the HTTP side."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @classmethod
    def parse(cls, text: str) -> HttpAddress:
        """Raise ``ValueError`` if ``text`` is not ``IP:PORT``; IPv6 addresses stand in brackets."""
        host, separator, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not port.isdecimal() or int(port) > 65_535:
            raise ValueError("must be an IP address and a port, as in 127.0.0.1:8088")
        try:
            ipaddress.ip_address(host)
        except ValueError as error:
            raise ValueError("must be an IP address and a port, as in 127.0.0.1:8088") from error
        return cls(host, int(port))

    def at(self, port: int) -> HttpAddress:
        """The same host at another port."""
        return HttpAddress(self.host, port)

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
