"""Batches and chunks: other ways of a message to the topic."""

from __future__ import annotations

import pulsar

from tests.support.cluster import PULSAR_MAJOR
from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import MINUTES_10_MS, SHARED, Lane


def test_batches_between_delayed_messages(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    producer = lane.producer(
        batching_enabled=True, batching_max_messages=20, batching_max_publish_delay_ms=50
    )
    sent = lane.send_in(*[None] * 60, *[600] * 30, *[None] * 60, producer=producer)
    plain = [one for one in sent if one.deliver_at_ms is None]
    inbox.wait_for(plain)
    lane.finish(inbox, sent)
    batched = [arrival for arrival in inbox.arrivals if arrival.deliver_at_ms is None]
    assert len({arrival.entry for arrival in batched}) < len(batched), "nothing was batched"


def test_batches_with_far_delayed_messages_come_at_once(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 20)
    producer = lane.producer(batching_enabled=True, batching_max_messages=50)
    plain = lane.send_in(*[None] * 200, producer=producer)
    inbox.wait_for(plain)
    lane.wait_delayed(len(far))
    assert_exactly(inbox.arrivals, plain)


def test_a_chunk_whose_first_one_is_acknowledged_goes_too(lane: Lane) -> None:
    """Pulsar 4 reads it for ever, and nothing new. It came without a delay, so no index has it."""
    inbox = Inbox()
    consumer = lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 20)
    lane.wait_delayed(len(far))
    consumer.close()
    producer = lane.producer(chunking_enabled=True)
    last = producer.send(bytes(6 << 20))
    idle = lane.client.subscribe(lane.topic, "sub", SHARED, receiver_queue_size=0)
    idle.acknowledge(pulsar.MessageId(-1, last.ledger_id(), last.entry_id() - 1, -1))
    lane.wait_stats(lambda now: now.backlog == len(far) + 1, "the first chunk is acknowledged")
    idle.close()
    plain = lane.send_in(*[None] * 10)
    lane.subscribe(inbox)
    inbox.wait_for(plain)
    # The read of the chunk gave those, too; these need another read.
    plain += lane.send_in(*[None] * 10)
    inbox.wait_for(plain)
    kept = 1 if PULSAR_MAJOR >= 5 else 0  # by a consumer, to whom Pulsar 5 gives it
    lane.wait_stats(
        lambda now: (now.delayed, now.backlog, now.unacknowledged) == (len(far), len(far) + kept, kept),
        "nobody reads the other chunk",
    )
    assert_exactly(inbox.arrivals, plain)


def test_chunks_of_a_consumer_that_has_gone_come_to_another(lane: Lane) -> None:
    """Pulsar 4 keeps them for that one, for ever, and reads nothing else."""
    half, inbox = Inbox(), Inbox()
    consumer = lane.subscribe(half, receiver_queue_size=1)
    # It gets the first chunk, and asks for no other.
    consumer.pause_message_listener()
    sent = lane.send_in(500, producer=lane.producer(chunking_enabled=True), payload=bytes(6 << 20))
    lane.wait_stats(lambda now: now.unacknowledged == 1, "it has the first chunk")
    lane.subscribe(inbox)
    consumer.close()
    sent += lane.send_in(*[None] * 10)
    lane.finish(inbox, sent)
    assert not half.arrivals


def test_chunked_messages(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    payload = bytes(range(256)) * 4 * 1024 * 6
    producer = lane.producer(chunking_enabled=True)
    assert len(payload) > 5 * 1024 * 1024, "larger than one entry may be"
    sent = lane.send_in(None, 800, producer=producer, payload=payload)
    sent += lane.send_in(*[800] * 10, *[None] * 10)
    lane.finish(inbox, sent)
    large = [arrival for arrival in inbox.arrivals if arrival.uid in {one.uid for one in sent[:2]}]
    assert [arrival.payload == payload for arrival in large] == [True, True]
