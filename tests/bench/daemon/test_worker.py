"""The broker's side of the bench ``daemon``, with a real one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.daemon.worker import MARK, metric, opened, processor_s, send, slowest
from bench.harness.broker_client import BrokerClient
from bench.harness.errors import BenchError
from bench.harness.made_entries import Source
from bench.scale.steps import BATCH
from tests.support.waiting import wait_until
from tidegate.plugin.local.daemon import Daemon


def test_the_slowest_part_and_a_last_one_that_is_shorter() -> None:
    assert slowest([0.0, 2.0, 3.0, 8.0], 2 * MARK + 5) == 1.0
    assert slowest([0.0, 4.0, 4.5], 2 * MARK) == MARK / 4
    assert slowest([0.0, 2.0], 10) == 5.0


def test_a_daemon_is_filled_counted_and_asked_for_what_is_due(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    source = Source(1_000, first_ms=int(time.time() * 1e3) - 10_000)
    daemon.start()
    try:
        with BrokerClient(daemon.socket_path, BATCH) as client:
            streams = opened(client, 3)
            for start in range(0, 4 * BATCH, BATCH):
                send(client, streams, source, start, BATCH)
            client.all_durable()
            assert client.outstanding == 0
            assert len(client.latency_ns) == 4 and sum(client.latency_entries) == 4 * BATCH
            assert 0 < client.latency_ms(0.0) <= client.latency_ms(0.5) <= client.latency_ms(1.0)
            # A scrape may tell of a moment ago, when looking takes long.
            wait_until(lambda: metric(daemon, "tidegate_entries_held") == 4 * BATCH, "all are counted")
            assert processor_s(daemon) > 0
            assert not streams[0].due
            client.credit(streams[0], 10)
            client.until(lambda: bool(streams[0].due), "DUE")
            assert len(streams[0].due[0]) == 10
        daemon.kill()
        with pytest.raises(OSError, match="refused"):
            BrokerClient(daemon.socket_path, BATCH)
        daemon.start()
        with BrokerClient(daemon.socket_path, BATCH) as client:
            assert len(opened(client, 1)[0].held) == 2 * BATCH
            daemon.kill()
            with pytest.raises(BenchError, match="closed"):
                client.until(lambda: False, "more")
    finally:
        daemon.kill()
