"""A daemon with a token, and a client that has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tidegate.plugin.daemon.serve import RunningDaemon

TOKEN = "a long random word"  # noqa: S105 of a test


def write_token(folder: Path) -> Path:
    """A file with the token."""
    path = folder / "token"
    path.touch(0o600)
    path.write_text(f"{TOKEN}\n")
    return path


class Served:
    """A daemon, a broker that talks to it, and an HTTP client with the token."""

    def __init__(self, daemon: RunningDaemon, broker: ShimClient, client: httpx.AsyncClient) -> None:
        self.daemon = daemon
        self.broker = broker
        self.client = client
        self.url = str(client.base_url).rstrip("/")

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await self.client.post(f"/tidegate/v1/{path}", json=body, headers=headers)

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(f"/tidegate/v1/{path}")


@asynccontextmanager
async def serving(
    start: StartDaemon, socket_path: Path, token_file: Path, **settings: Any
) -> AsyncIterator[Served]:
    """Serve HTTP with a token, to a broker and a client."""
    async with (
        start(http="127.0.0.1:0", http_token_file=token_file, **settings) as daemon,
        await ShimClient.connect(socket_path) as broker,
        httpx.AsyncClient(
            trust_env=False,
            base_url=f"http://127.0.0.1:{daemon.http_port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=30.0,
        ) as client,
    ):
        yield Served(daemon, broker, client)
