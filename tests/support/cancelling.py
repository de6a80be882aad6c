"""Messages that are cancelled: acknowledged by the ids that their producer got, before they are due."""

from __future__ import annotations

from collections.abc import Sequence

import pulsar

from tests.support.inbox import UID
from tests.support.lane import Lane
from tests.support.waiting import wait_until


def send_with_ids(lane: Lane, number: int, deliver_at_ms: int) -> list[pulsar.MessageId]:
    """Publish delayed messages in order; their ids."""
    ids: dict[int, pulsar.MessageId] = {}
    producer = lane.producer(batching_enabled=False)
    for n in range(number):
        producer.send_async(
            b"%d" % n,
            lambda _, stored, n=n: ids.__setitem__(n, stored),
            deliver_at=deliver_at_ms,
            properties={UID: str(n)},
        )
    producer.flush()
    wait_until(lambda: len(ids) == number, "all are stored")
    producer.close()
    return [ids[n] for n in range(number)]


def cancel(consumer: pulsar.Consumer, ids: Sequence[pulsar.MessageId]) -> None:
    """Acknowledge what has not come."""
    for one in ids:
        consumer.acknowledge(one)
