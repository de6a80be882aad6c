"""A drill's clients, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulsar
import pytest

from tidegate.plugin.drill import clients
from tidegate.plugin.drill.clients import ClientError, Clients
from tidegate.plugin.drill.plan import Load, plan


class Opened:
    """Counts the library's clients that are open."""

    count = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        Opened.count += 1

    def shutdown(self) -> None:
        Opened.count -= 1


def test_a_client_that_opens_amid_the_end_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar, "Client", Opened)
    made = Clients(
        lambda: "pulsar://127.0.0.1:1",
        "topic",
        "drill",
        plan=plan(Load(messages=1), seed=1),
        run=1,
        log_path=tmp_path / "client.log",
        now_us=lambda: 0,
    )
    monkeypatch.setattr(clients, "reach", lambda _: made.close())  # from another thread, in a drill
    with pytest.raises(ClientError, match="ending"):
        made.connect()
    assert Opened.count == 0
