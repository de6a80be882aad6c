"""Tidegate's servlet in a broker's web service, as ``attach`` would put it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tidegate.plugin.attach import unpacking
from tidegate.plugin.attach.nar import NAME, SERVLET, servlet_nar
from tidegate.plugin.attach.servlets import DIRECTORY_KEY, SERVLETS_KEY


def servlet_conf(folder: Path) -> dict[str, str]:
    """The conf keys of a broker with the servlet, whose archive is put into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(servlet_nar())
    # Pulsar's own choice for what it unpacks is one directory in /tmp for everybody.
    return {SERVLETS_KEY: SERVLET, DIRECTORY_KEY: str(folder), unpacking.KEY: str(folder)}


class Web:
    """A broker's web service; ``topic`` is ``tenant/namespace/name`` throughout."""

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # A server that has not read a body to its end closes the connection after the answer.
        once = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(
            base_url=url, timeout=60.0, trust_env=False, headers=headers, limits=once, **options
        )

    def get(self, topic: str, rest: str, *, subscription: str = "sub") -> httpx.Response:
        """Look at a subscription."""
        return self.client.get(f"/tidegate/v1/persistent/{topic}/{subscription}/{rest}")

    def post(self, topic: str, rest: str, body: Any) -> httpx.Response:
        """Change something of the subscription ``sub``."""
        return self.client.post(f"/tidegate/v1/persistent/{topic}/sub/{rest}", json=body)

    def close(self) -> None:
        """Release the connections."""
        self.client.close()


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and detail of a problem document, which says the same as the response."""
    document = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    assert document["status"] == answer.status_code
    return answer.status_code, document["detail"]
