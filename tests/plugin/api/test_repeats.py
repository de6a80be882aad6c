"""Only a client that may ask again is told to."""

from __future__ import annotations

from pathlib import Path

from tests.support.daemons import StartDaemon
from tests.support.deciding import TOPIC, waiting
from tests.support.flaky_store import FlakyStore
from tests.support.served import serving

ORDERS = "persistent/public/default/orders/sub"


async def test_nobody_is_asked_to_move_by_a_span_again(
    start: StartDaemon, socket_path: Path, token_file: Path
) -> None:
    store = FlakyStore()
    async with serving(start, socket_path, token_file, store=store) as served:
        stream = await waiting(served.broker, TOPIC)
        store.failing = True
        by_span = await served.post(f"{ORDERS}/reschedule", {"ids": ["5:1"], "by_ms": 60_000})
        assert (by_span.status_code, len(stream.reschedules)) == (200, 1)
        told = by_span.json()
        assert (told["done"], told["undecided"]) == (0, 1)
        assert "a span may be added, and is added again if asked again" in told["why"]
        by_span = await served.post(f"{ORDERS}/reschedule", {"ids": ["5:1"], "by_ms": 60_000})
        assert (by_span.status_code, len(stream.reschedules)) == (503, 1)
        assert "Retry-After" not in by_span.headers
        for path, body in (("reschedule", {"at_ms": 5_000_000_000_000}), ("cancel", {})):
            answer = await served.post(f"{ORDERS}/{path}", {"ids": ["5:1"], **body})
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        store.failing = False
