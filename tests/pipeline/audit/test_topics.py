"""The audit of two real topics: the delayed messages' own, and one of receipts that consumers write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pulsar as client
from pyspark.sql import SparkSession

from tests.support.cluster import RETAINED
from tests.support.inbox import Arrival, Inbox
from tests.support.lane import Lane
from tests.support.pipeline.commands import Notes
from tidegate.pipeline.audit import job
from tidegate.pipeline.audit.options import AuditOptions, Pulsar, Record, StreamOptions


def receipt(arrival: Arrival) -> bytes:
    ledger_id, entry_id = arrival.entry
    return json.dumps(
        {
            "message_id": f"{ledger_id}:{entry_id}:-1",
            "subscription": "sub",
            "received_at_ms": arrival.received_ns // 1_000_000,
            "redelivery_count": arrival.redelivery_count,
        }
    ).encode()


def write_receipts(lane: Lane, arrivals: list[Arrival]) -> None:
    producer = lane.producer(batching_enabled=True, compression_type=client.CompressionType.LZ4)
    for arrival in arrivals:
        producer.send_async(receipt(arrival), None)
    producer.flush()
    producer.close()


def test_two_topics(make_lane: Callable[..., Lane], spark: SparkSession, tmp_path: Path) -> None:
    sending, receiving = make_lane(namespace=RETAINED), make_lane(namespace=RETAINED)
    inbox = Inbox()
    sending.subscribe(inbox)
    sent = sending.send_in(*[500] * 100, *[None] * 20, keys=["a", "b"])
    # One message in chunks: its last chunk names it, and nobody will have received it.
    sending.send_in(60_000, payload=bytes(6 * 1024 * 1024), producer=sending.producer(chunking_enabled=True))
    inbox.wait_for(sent)
    arrivals = inbox.arrivals
    write_receipts(receiving, arrivals[5:] + arrivals[10:12])
    wanted = AuditOptions(
        sent=Record.of(f"persistent://{sending.topic}", None),
        received=Record.of(f"persistent://{receiving.topic}", None),
        pulsar=Pulsar(service_url=sending.cluster.service_url, admin_url=sending.admin.base_url),
        report=str(tmp_path / "report"),
    )
    result, exit_code = job.run(Notes(spark), wanted.model_dump(mode="json"))
    assert exit_code == 1
    assert {name: result[name] for name in ("sent", "received", "lost", "early", "repeated", "unknown")} == {
        "sent": 121,
        "received": 117,
        "lost": 6,
        "early": 0,
        "repeated": 2,
        "unknown": 0,
    }
    assert result["lateness_ms"]["count"] == len([one for one in arrivals[5:] if one.deliver_at_ms])
    assert result["lateness_ms"]["p50"] >= 0

    stream = StreamOptions(checkpoint=str(tmp_path / "checkpoint"), once=True)
    beside = wanted.model_copy(update={"stream": stream, "subscriptions": ("sub",), "report": None})
    result, _ = job.run(Notes(spark), beside.model_dump(mode="json"))
    assert (result["sent"], result["delivered"], result["pending"]) == (121, 115, 6)
    write_receipts(receiving, arrivals[:5])
    result, exit_code = job.run(Notes(spark), beside.model_dump(mode="json"))
    assert (result["delivered"], result["pending"], exit_code) == (120, 1, 0)
