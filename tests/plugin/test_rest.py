"""Requests to an admin interface: redirects, bounds, reasons."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tidegate.plugin.shared import rest
from tidegate.plugin.shared.rest import (
    Answer,
    NoAnswerOfPulsarError,
    RedirectError,
    RestClient,
    UnansweredError,
    port_of,
)


class _Broker(BaseHTTPRequestHandler):
    """Redirects /a to /b, /circle to itself, /away to another scheme and /nowhere to no place."""

    asked: ClassVar[list[tuple[str, str, str | None, bytes]]] = []
    away: ClassVar[dict[str, str]] = {
        "/a": "/b",
        "/circle": "/circle",
        "/away": "https://127.0.0.1:1/b",
        "/nowhere": "http://:x/",
    }

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
        location = self.away.get(self.path)
        self.send_response(200 if location is None else 307)
        if location is not None:
            self.send_header("Location", location)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"[10]")

    def do_PUT(self) -> None:
        self.do_GET()


@pytest.fixture
def url() -> Iterator[str]:
    _Broker.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Broker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_a_redirect_is_followed_with_method_body_and_token(url: str) -> None:
    answer = RestClient(lambda: "secret").request("PUT", f"{url}/a", {"bundles": 1})
    assert (answer.status, answer.json(), answer.is_success) == (200, [10], True)
    sent = ("Bearer secret", b'{"bundles": 1}')
    assert _Broker.asked == [("PUT", "/a", *sent), ("PUT", "/b", *sent)]


def test_the_token_is_read_for_each_request(url: str) -> None:
    tokens = iter(["old", None])
    client = RestClient(lambda: next(tokens))
    for _ in range(2):
        client.request("GET", f"{url}/b?x=1")
    assert [(path, token) for _, path, token, _ in _Broker.asked] == [
        ("/b?x=1", "Bearer old"),
        ("/b?x=1", None),
    ]


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/circle", RedirectError, "in circles"),
        ("/away", RedirectError, "from http to another scheme: give the admin URL of that one"),
        ("/nowhere", NoAnswerOfPulsarError, "which is no URL"),
    ],
)
def test_a_redirect_that_leads_nowhere(url: str, path: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RestClient().request("GET", f"{url}{path}")


def test_an_answer_is_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "ANSWER_MAX_BYTES", 3)
    with pytest.raises(NoAnswerOfPulsarError, match="answers with more than"):
        RestClient().request("GET", url)


def test_nobody_answers() -> None:
    with pytest.raises(UnansweredError, match="refused"):
        RestClient().request("GET", "http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"reason": "Topic has\\n1 producer"}', "Topic has 1 producer"),
        (b"<html>\x1b[1m", "<html>?[1m"),
        (b'{"other": 1}', "no reason given"),
        (b"[" * 100_000, "[" * 200),
        (b"", "no reason given"),
    ],
)
def test_a_refusals_reason_is_one_bounded_line(body: bytes, reason: str) -> None:
    assert Answer(412, body).reason == reason


@pytest.mark.parametrize(("url", "port"), [("http://h", 0), ("http://h:80", 80), ("http://h:x", None)])
def test_a_port(url: str, port: int | None) -> None:
    assert port_of(url) == port
