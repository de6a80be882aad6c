"""Chunked messages for consumers with few permits, on a broker of their own that takes small messages only.

Pulsar 4.0's Shared dispatcher then forgets the consumer of a message's last chunk (apache/pulsar#25620), and
reads nothing else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, TrackerKind, check_parts
from tests.support.inbox import Inbox
from tests.support.lane import Lane

CHUNK_BYTES = 10_240
TOPICS, MESSAGES, CHUNKS, PERMITS = 6, 100, 4, 5


@pytest.fixture(autouse=True)
def expiring() -> None:
    """Nothing of the session's broker is needed here."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker whose clients cut messages into small chunks."""
    kind = TrackerKind.chosen()
    check_parts(kind)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(
            kind,
            tmp_path_factory.mktemp("chunks"),
            Path(short) / "daemon.sock",
            conf={"maxMessageSize": str(CHUNK_BYTES)},
        )
        try:
            started.start()
            yield started
        finally:
            started.end()


def test_what_follows_a_chunk_without_permits_comes(stand: Cluster) -> None:
    """The chunk's own message may be incomplete for its consumer, and wait for a redelivery."""
    lanes = [(Lane(stand, f"permits-{number}"), Inbox()) for number in range(TOPICS)]
    payload = bytes((CHUNKS - 1) * CHUNK_BYTES)
    for lane, inbox in lanes:
        for _ in range(2):
            lane.subscribe(inbox, receiver_queue_size=PERMITS)
    for lane, _ in lanes:
        producer = lane.producer(chunking_enabled=True)
        lane.send_in(*[1_000] * MESSAGES, producer=producer, payload=payload)
    for lane, _ in lanes:
        lane.wait_delayed(0)
    plain = [lane.send_in(*[None] * 10) for lane, _ in lanes]
    for (lane, inbox), those in zip(lanes, plain, strict=True):
        inbox.wait_for(those)
        lane.close()
