"""Tests' work with topics: rows by each of the two ways, and messages of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulsar
from pyspark.sql import DataFrame, SparkSession

from tests.support.lane import Lane
from tidegate.pipeline.source.backlog import FORMAT

PUBLIC_KEY = Path(__file__).parents[2] / "testdata" / "pipeline" / "encryption_public_key.pem"
COMPRESSIONS = (
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
)
Row = dict[str, Any]


def options(lane: Lane, **more: str) -> dict[str, str]:
    """The options of the data source for the lane's topic."""
    return {
        "service_url": lane.cluster.service_url,
        "admin_url": lane.admin.base_url,
        "topic": f"persistent://{lane.topic}",
        **more,
    }


def frame(spark: SparkSession, lane: Lane, **more: str) -> DataFrame:
    """The topic as a table."""
    return spark.read.format(FORMAT).options(**options(lane, **more)).load()


def rows(frame_: DataFrame) -> list[Row]:
    """Rows in the topic's order."""
    found = [row.asDict() for row in frame_.collect()]
    return sorted(
        found, key=lambda row: (row["partition"], row["ledger_id"], row["entry_id"], row["batch_index"])
    )


def both_ways(spark: SparkSession, lane: Lane, **more: str) -> list[Row]:
    """The rows, which must be the same straight from the bookie and through the broker."""
    direct = rows(frame(spark, lane, read_from="bookies", **more))
    through = rows(frame(spark, lane, read_from="broker", **more))
    assert direct == through
    return direct


def send_every_kind(lane: Lane) -> None:
    """Plain, delayed, keyed, batched, compressed, chunked and encrypted messages, in several ledgers."""
    lane.send_in(*[None, 600_000] * 250, keys=["red", "green", "blue"])
    for compression in COMPRESSIONS:
        lane.send_in(
            *[None] * 30,
            keys=["a", "b"],
            payload=b"compress me " * 20,
            producer=lane.producer(
                batching_enabled=True,
                batching_max_messages=7,
                batching_max_publish_delay_ms=50,
                compression_type=compression,
            ),
        )
        lane.send_in(
            None, 600_000, payload=b"compress me " * 20, producer=lane.producer(compression_type=compression)
        )
    lane.send_in(None, 600_000, payload=bytes(3 * 1024 * 1024), producer=chunking(lane))
    for batching in (False, True):
        lane.send_in(*[None] * 10, keys=["k"], producer=encrypting(lane, batching))
    lane.send_in(*[600_000] * 20, None)


def chunking(lane: Lane) -> pulsar.Producer:
    """Its messages above a mebibyte come in chunks."""
    return lane.producer(chunking_enabled=True)


def encrypting(lane: Lane, batching: bool) -> pulsar.Producer:
    """Encrypts; nobody here could read it."""
    return lane.producer(
        encryption_key="key",
        crypto_key_reader=pulsar.CryptoKeyReader(str(PUBLIC_KEY), str(PUBLIC_KEY)),
        batching_enabled=batching,
        batching_max_messages=5,
        batching_max_publish_delay_ms=50,
    )
