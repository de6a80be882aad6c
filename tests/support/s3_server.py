"""A server of the S3 API on loopback, as a process of its own: that of the package moto."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

import httpx
import pytest

from tests.support.waiting import wait_until
from tidegate.plugin.local.process import free_ports

_KEY, _SECRET = "key-of-tests", "secret-of-tests"


class S3Server:
    """Use it as a context manager. ``bucket`` is there."""

    bucket = "tidegate"

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(self._make_bucket, "the S3 server", timeout_s=60.0)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _make_bucket(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the S3 server has ended"
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={_KEY}/20260101/us-east-1/s3/aws4_request"}
        try:
            return httpx.put(f"{self.url}/{self.bucket}", headers=headers, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    @property
    def environment(self) -> dict[str, str]:
        """Where a client looks for the server, and for what lets it in."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def be_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have this process's clients use it."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
