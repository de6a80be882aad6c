"""The admin interface of a stand: a topic is deleted, and one that somebody uses is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.support.own_stands import TOPIC
from tidegate.plugin.drill.stands import admin as stand_admin
from tidegate.plugin.drill.stands.admin import StandAdmin


class _InUse(BaseHTTPRequestHandler):
    """Refuses to delete a topic ``refusals`` times more, as a broker whose clients have not all gone does."""

    refusals = 0
    asked: ClassVar[list[str]] = []

    def do_DELETE(self) -> None:
        self.asked.append(self.path)
        in_use = len(self.asked) <= self.refusals
        self.send_response(412 if in_use else 204)
        self.end_headers()
        if in_use:
            self.wfile.write(b'{"reason": "Topic has 1 connected producers/consumers"}')


@pytest.fixture
def admin() -> Iterator[StandAdmin]:
    _InUse.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _InUse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield StandAdmin(lambda: f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


def test_a_client_that_has_just_closed_is_waited_for(admin: StandAdmin) -> None:
    _InUse.refusals = 2
    answer = admin.delete_unused(TOPIC)
    assert answer is not None
    assert answer.is_success
    assert _InUse.asked == ["/admin/v2/persistent/public/default/test"] * 3


def test_a_topic_that_somebody_uses_stays(admin: StandAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_admin, "_IN_USE_TIMEOUT_S", 0.5)
    _InUse.refusals = 1_000
    answer = admin.delete_unused(TOPIC)
    assert answer is not None
    assert answer.status == 412
    assert "Topic has 1 connected" in answer.text
    assert len(_InUse.asked) > 1


def test_nobody_answers() -> None:
    nobody = StandAdmin(lambda: "http://127.0.0.1:1")
    assert nobody.delete_unused(TOPIC) is None
