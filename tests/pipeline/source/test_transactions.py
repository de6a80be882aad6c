"""Messages in transactions: the committed ones, up to the first open one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.cluster import Cluster
from tests.support.lane import Lane
from tests.support.pipeline.topics import both_ways
from tests.support.transactions import Transaction, send_in_transactions, transactions_enabled


@pytest.fixture(scope="module", autouse=True)
def transactions(cluster: Cluster) -> Iterator[None]:
    """A broker with transactions."""
    with transactions_enabled(cluster):
        yield


def test_transactions(lane: Lane, spark: SparkSession) -> None:
    lane.reserve()
    committed = send_in_transactions(
        lane,
        Transaction("commit", 0, 20, 600_000),
        Transaction("abort", 100, 20, 600_000),
        Transaction("commit", 200, 20, 0),
        Transaction("abort", 300, 20, 0),
    )
    found = both_ways(spark, lane)
    assert len(found) == len(committed) == 40
    lane.send_in(*[None] * 5, 600_000)
    assert len(both_ways(spark, lane)) == 46
    # Messages behind the beginning of an open transaction stay until its end.
    send_in_transactions(lane, Transaction("open", 400, 20, 600_000))
    lane.send_in(*[None] * 5)
    assert len(both_ways(spark, lane)) == 46
