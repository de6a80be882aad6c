"""A bug at one subscription's frame ends one stream, and nothing that it left half done is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.delay_index import DelayIndex
from tidegate.index.entry import Entries
from tidegate.index.names import SubscriptionName
from tidegate.index.positions import PositionSet
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import ErrorCode

TOPIC = "persistent://public/default/orders"
FAR_MS = 1 << 42


def index_of(daemon: RunningDaemon, topic: str) -> DelayIndex:
    index = daemon.engine.catalog.get(SubscriptionName(topic, "sub"))
    assert index is not None
    return index


@pytest.mark.parametrize("frames", [1, 3])
async def test_a_bug_at_a_frame_ends_its_stream_alone(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """`frames`: several small ones are applied together."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        failing = await client.open(TOPIC)
        other = await client.open(f"{TOPIC}-2")
        failing.add(entries(5, FAR_MS))
        await failing.durable()
        failing.ack(PositionSet.of([(1, 4)]))
        await failing.durable()
        index = index_of(daemon, TOPIC)

        def bug(_: Entries) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(index._timeline, "stage", bug)
            for number in range(frames):
                failing.add(entries(5, FAR_MS, ledger_id=2 + number))
            other.add(entries(5, FAR_MS))
            error = await failing.ended()
        assert error.code == ErrorCode.FAILED
        assert "a bug" in error.message
        await other.durable()
        assert not client.closed

        # The positions had been noted before it failed: nobody would ever have handed them out.
        await until(lambda: len(index.held()) == 4)
        index.check()
        again = await client.open(TOPIC, horizon_ms=0)
        assert sorted(again.held.difference(again.unheld)) == [(1, 0), (1, 1), (1, 2), (1, 3)]
        assert not again.acknowledged
        again.add(entries(5, FAR_MS, ledger_id=2))
        await again.durable()
        assert len(index.held()) == 9
        index.check()
