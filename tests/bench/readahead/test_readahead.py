"""The pure parts of the bench readahead: its schedule, its peers, what is made of live traffic's times."""

from __future__ import annotations

import numpy as np
import pytest

from bench.harness.errors import BenchError
from bench.harness.trackers import OURS, TRACKERS
from bench.pulsar.live import LiveMessages, Window
from bench.readahead.bench import DUE, FAR_MS, WITHOUT, peer_of, schedule

MS = 1_000_000


def test_the_due_ones_come_last_and_all_others_are_hours_away() -> None:
    rows = schedule(1_000, seed=1)
    sequence, _, deliver_at_ms = rows.T
    assert sequence.tolist() == list(range(1_000 + DUE))
    now = deliver_at_ms[-1]
    assert (deliver_at_ms[1_000:] == now).all()
    assert (deliver_at_ms[:1_000] >= now + FAR_MS[0]).all()
    assert (np.diff(deliver_at_ms[:1_000]) < 0).any()


def test_without_reading_ahead_nothing_else_differs() -> None:
    ours, without = TRACKERS[OURS], peer_of(WITHOUT)
    assert without.conf == {"tidegateReadAhead": "false"}
    assert (without.factory, without.needs_daemon) == (ours.factory, ours.needs_daemon)


def test_latencies_are_of_what_was_sent_in_the_windows() -> None:
    times = np.array([[t * MS, t * MS + t * MS // 10, t * MS + t * MS // 5] for t in range(10, 60, 10)])
    messages = LiveMessages(times)
    windows = [Window(20 * MS, 30 * MS), Window(40 * MS, 51 * MS)]
    assert messages.publish_ms(windows).tolist() == [2, 4, 5]
    assert messages.arrival_ms(windows).tolist() == [4, 8, 10]


@pytest.mark.parametrize("sent_ms", [20, 99], ids=["one is missing", "none was sent"])
def test_missing_live_messages_are_an_error(sent_ms: int) -> None:
    messages = LiveMessages(np.array([[20 * MS, 0, 0]]))
    with pytest.raises(BenchError, match="missing"):
        messages.publish_ms([Window(sent_ms * MS, sent_ms * MS + 1)])
