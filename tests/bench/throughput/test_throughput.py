"""The pure parts of the throughput bench: schedules, what is made of receipts, a broker's gauges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.harness.driver import Recorder
from bench.harness.errors import BenchError
from bench.harness.results import Metric
from bench.pulsar.stand import Sent
from bench.throughput import broker_memory
from bench.throughput.bench import Scenario, Waiting, due_times, record, rows
from bench.throughput.broker_memory import MIB, BrokerMemory
from tests.support.receipts import received

INSTANT = Scenario("all due at one instant", "instant", 4, 0)
SECOND_NS = 1_000_000_000
EXPOSITION = """# TYPE jvm_memory_bytes_used gauge
jvm_memory_bytes_used{cluster="standalone",area="heap"} 1.34217728E8
jvm_memory_bytes_used{cluster="standalone",area="nonheap"} 7.0E7
jvm_memory_direct_bytes_used{cluster="standalone"} 2.5165824E7
plain_gauge 12
"""


def measured(scenario: Scenario, records: NDArray[np.void], daemon_bytes: int = 0) -> dict[str, Metric]:
    recorder = Recorder()
    waiting = Waiting(3, BrokerMemory(100 * MIB, 200 * MIB, 800 * MIB), daemon_bytes)
    record(recorder, scenario, "tidegate", Sent(4, 0, 2 * SECOND_NS), waiting, records)
    return {metric.title: metric for metric in recorder.metrics}


def test_all_messages_of_one_instant_are_due_together() -> None:
    assert due_times(5, 7_000, 0, seed=1).tolist() == [7_000] * 5


def test_messages_over_some_seconds_are_due_evenly_and_not_in_the_order_of_the_topic() -> None:
    due_ms = due_times(1_000, 7_000, 2, seed=1)
    assert np.sort(due_ms).tolist() == [7_000 + 2 * i for i in range(1_000)]
    assert (np.diff(due_ms) < 0).any()


def test_a_schedule_is_sent_at_once_and_counts_on_from_its_first_sequence() -> None:
    made = rows(due_times(3, 9, 0, seed=0), first_sequence=10)
    assert made.tolist() == [[10, 0, 9], [11, 0, 9], [12, 0, 9]]


def test_rates_count_from_the_first_send_and_from_the_first_arrival() -> None:
    due_ms = 10_000
    arrivals = ((0, 10.5, 10.6), (1, 11.0, 11.0), (2, 12.0, 12.0), (3, 12.4, 12.5))
    records = received(
        *((n, due_ms, int(at * SECOND_NS), int(acked * SECOND_NS)) for n, at, acked in arrivals)
    )
    metrics = measured(INSTANT, records)
    values = {title: metric.samples["tidegate"][0] for title, metric in metrics.items()}
    assert values["published"] == 2.0
    assert values["delivered and acknowledged"] == 2.0
    assert values["first message"] == 500.0
    assert values["last acknowledgement"] == 2.5
    assert values["arrived early"] == values["lost"] == values["duplicated"] == 0
    assert metrics["published"].better == metrics["delivered and acknowledged"].better == "higher"


def test_what_is_early_lost_and_twice_there_is_counted() -> None:
    records = received(
        (0, 10_000, 9_200 * 1_000_000, 9_200 * 1_000_000),
        (1, 10_000, 11_000 * 1_000_000, 11_000 * 1_000_000),
        (1, 10_000, 11_200 * 1_000_000, 11_200 * 1_000_000),
    )
    values = {title: metric.samples["tidegate"][0] for title, metric in measured(INSTANT, records).items()}
    assert values["first message"] == -800.0
    assert values["arrived early"] == 1
    assert values["lost"] == 2
    assert values["duplicated"] == 1
    assert values["delivered and acknowledged"] == 1.0


def test_memory_is_of_the_broker_and_of_our_daemon_together() -> None:
    records = received((0, 0, SECOND_NS, 2 * SECOND_NS))
    values = {
        title: metric.samples["tidegate"][0]
        for title, metric in measured(INSTANT, records, daemon_bytes=50 * MIB).items()
    }
    assert values["broker's heap while all wait"] == 100
    assert values["broker's direct memory"] == 200
    assert values["resident, broker and daemon"] == 850
    assert values["resident, daemon alone"] == 50
    assert values["held by the tracker while all wait"] == 3


def test_the_delivery_rate_of_messages_that_fall_due_evenly_is_no_headline() -> None:
    records = received((0, 0, SECOND_NS, 2 * SECOND_NS))
    spread = Scenario("due evenly over 15 s", "spread", 1, 15)
    assert measured(INSTANT, records)["delivered and acknowledged"].headline
    assert not measured(spread, records)["delivered and acknowledged"].headline


def test_a_gauge_is_found_by_its_name_and_label() -> None:
    assert broker_memory.gauge(EXPOSITION, "jvm_memory_bytes_used", 'area="heap"') == 128 * MIB
    assert broker_memory.gauge(EXPOSITION, "jvm_memory_bytes_used", 'area="nonheap"') == 70_000_000
    assert broker_memory.gauge(EXPOSITION, "jvm_memory_direct_bytes_used") == 24 * MIB
    assert broker_memory.gauge(EXPOSITION, "plain_gauge") == 12


def test_a_gauge_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(BenchError, match="no jvm_threads"):
        broker_memory.gauge(EXPOSITION, "jvm_threads")
    with pytest.raises(BenchError, match='area="metaspace"'):
        broker_memory.gauge(EXPOSITION, "jvm_memory_bytes_used", 'area="metaspace"')
