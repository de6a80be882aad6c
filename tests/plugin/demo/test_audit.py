"""What became of each message: early, lost, repeated, late and why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.outcomes import (
    START_US,
    Row,
    at_us,
    broker_outage,
    confirmed_at_once,
    daemon_outage,
    on_time,
    row,
    workload_of,
)
from tidegate.plugin.checks import NEVER, Lateness
from tidegate.plugin.demo.audit import Audit, Cause, Deliveries, Outage, audit
from tidegate.plugin.demo.workload import Kind, Workload, plan

RETRY = Kind.RETRY


def audited(workload: Workload, rows: list[Row], *outages: Outage) -> Audit:
    return audit(workload, START_US, confirmed_at_once(workload), Deliveries.of(rows), outages)


def test_all_on_time() -> None:
    workload = workload_of([(RETRY, 0, 1), (Kind.PLAIN, 1, None), (Kind.FAR, -1, 86_400)])
    result = audited(workload, on_time(workload, late_ms=3.5))
    assert (result.sent, result.delivered, result.plain) == (3, 2, 1)
    assert (result.early, result.lost, result.repeats.total, result.resent) == (0, 0, 0, 0)
    assert result.overall == Lateness(1, 3.5, 3.5, 3.5)


def test_a_microsecond_early_is_early() -> None:
    workload = workload_of([(RETRY, 0, 1), (RETRY, 0, 1)])
    result = audited(workload, [row(0, 1.0), row(1, 0.999_999)])
    assert result.early == 1
    assert result.earliest_ms == pytest.approx(0.001)


def test_a_message_of_tomorrow_that_comes_today_is_early() -> None:
    workload = workload_of([(Kind.FAR, -1, 86_400)])
    assert audited(workload, [row(0, 5.0)]).early == 1


def test_what_was_confirmed_and_never_came_is_lost_but_not_tomorrows() -> None:
    workload = workload_of([(RETRY, 0, 1), (Kind.PLAIN, 0, None), (Kind.FAR, -1, 86_400)])
    assert audited(workload, []).lost == 2


def test_what_the_broker_never_confirmed_is_not_lost() -> None:
    workload = workload_of([(RETRY, 0, 1)])
    result = audit(workload, START_US, np.array([NEVER]), Deliveries.of([]), [])
    assert (result.lost, result.unconfirmed) == (0, 1)


class TestRepeats:
    workload = workload_of([(RETRY, 0, 9.0), (RETRY, 0, 25.0)])

    def repeats(self, *rows: Row) -> tuple[int, int, int, int]:
        result = audited(self.workload, list(rows), broker_outage(10, 20), daemon_outage(30, 31)).repeats
        return result.unacknowledged, result.acknowledged, result.acknowledged_too_old, result.other

    def test_not_acknowledged_before_the_kill(self) -> None:
        assert self.repeats(row(0, 9.0), row(0, 20.5, 20.5)) == (1, 0, 0, 0)

    def test_acknowledged_just_before_the_kill(self) -> None:
        assert self.repeats(row(0, 9.85, 9.85), row(0, 20.5, 20.5)) == (0, 1, 0, 0)

    def test_acknowledged_long_before_the_kill(self) -> None:
        assert self.repeats(row(0, 9.0, 9.0), row(0, 20.5, 20.5)) == (0, 1, 1, 0)

    def test_the_client_hands_on_what_it_had_fetched(self) -> None:
        assert self.repeats(row(0, 10.01, 10.01), row(0, 20.5, 20.5)) == (1, 0, 0, 0)

    def test_twice_with_no_kill_between(self) -> None:
        assert self.repeats(row(1, 25.0, 25.0), row(1, 25.1, 25.1)) == (0, 0, 0, 1)

    def test_twice_while_the_daemon_is_down_is_not_for_the_kill(self) -> None:
        assert self.repeats(row(1, 30.2, 30.2), row(1, 30.3, 30.3)) == (0, 0, 0, 1)

    def test_of_two_kills_the_first_one_after_the_acknowledgement_counts(self) -> None:
        result = audited(
            self.workload,
            [row(0, 9.9, 9.9), row(0, 31.5, 31.5)],
            broker_outage(10, 20),
            daemon_outage(30, 31),
        )
        assert result.repeats.oldest_ack_ms == pytest.approx(100)

    def test_one_message_at_two_positions_is_the_producers(self) -> None:
        result = audited(self.workload, [row(0, 9.0, 9.0, entry_id=5), row(0, 9.1, 9.1, entry_id=6)])
        assert (result.resent, result.repeats.total) == (1, 0)

    def test_plain_ones_are_counted_apart(self) -> None:
        workload = workload_of([(Kind.PLAIN, 5, None)])
        result = audited(workload, [row(0, 5.0, 5.0), row(0, 20.5, 20.5)], broker_outage(10, 20))
        assert (result.repeats.plain, result.repeats.acknowledged_too_old) == (1, 0)


class TestCauses:
    @pytest.mark.parametrize(
        ("due_s", "received_s", "cause"),
        [
            (5.0, 5.1, Cause.NORMAL),
            (9.99, 21.0, Cause.BROKER_DOWN),
            (15.0, 21.5, Cause.BROKER_DOWN),
            (20.2, 21.4, Cause.CATCHING_UP),
            (25.0, 25.1, Cause.NORMAL),
            (30.5, 30.6, Cause.DAEMON_DOWN),
        ],
    )
    def test_cause(self, due_s: float, received_s: float, cause: Cause) -> None:
        # The second message ends the catching up at 21.5 s.
        workload = workload_of([(RETRY, 0, due_s), (RETRY, 0, 19.9)])
        rows = [row(0, received_s), row(1, 21.5)]
        result = audited(workload, rows, broker_outage(10, 20), daemon_outage(30, 31))
        expected = [cause, Cause.BROKER_DOWN]
        assert {each: result.by_cause[each].count for each in Cause if result.by_cause[each].count} == {
            each: expected.count(each) for each in set(expected)
        }

    def test_stored_only_after_it_was_due(self) -> None:
        workload = workload_of([(RETRY, 0, 1.0)])
        result = audit(workload, START_US, np.array([at_us(3.0)]), Deliveries.of([row(0, 3.1)]), [])
        assert result.by_cause[Cause.STORED_LATE].count == 1

    def test_the_burst_is_not_steady(self) -> None:
        workload = workload_of([(Kind.BURST, 0, 5.0), (RETRY, 0, 5.0)])
        result = audited(workload, [row(0, 7.0), row(1, 5.001)])
        assert result.by_cause[Cause.NORMAL].max_ms == pytest.approx(2000)
        assert result.steady.max_ms == pytest.approx(1)


class TestRecovery:
    def test_times_of_an_outage(self) -> None:
        workload = workload_of([(RETRY, 0, 5.0), (RETRY, 0, 15.0), (Kind.PLAIN, 21, None)])
        rows = [row(0, 10.02), row(2, 20.1), row(1, 20.5)]
        (recovery,) = audited(workload, rows, broker_outage(10, 20)).recoveries
        assert recovery.killed_at_s == pytest.approx(10)
        assert recovery.down_s == pytest.approx(9)
        assert recovery.usable_after_s == pytest.approx(10)
        assert recovery.first_due_after_kill_s == pytest.approx(10.5)
        assert recovery.first_due_after_usable_s == pytest.approx(0.5)
        assert (recovery.due_meanwhile, recovery.delivered_meanwhile) == (1, 1)

    def test_nothing_came_any_more(self) -> None:
        workload = workload_of([(RETRY, 0, 15.0)])
        (recovery,) = audited(workload, [], broker_outage(10, 20)).recoveries
        assert recovery.first_due_after_kill_s is None
        assert recovery.first_due_after_usable_s is None
        assert recovery.due_afterwards == 1


@given(
    st.integers(1, 60),
    st.integers(0, 20),
    st.data(),
)
def test_every_message_is_in_exactly_one_place(messages: int, far: int, data: st.DataObject) -> None:
    workload = plan(messages, 20.0, far)
    expected = np.flatnonzero(workload.kind != Kind.FAR).tolist()
    missing = data.draw(st.sets(st.sampled_from(expected)))
    early = data.draw(st.sets(st.sampled_from([n for n in expected if workload.due_ms[n] >= 0] or [-1])))
    again = data.draw(st.sets(st.sampled_from(expected)))
    rows: list[Row] = []
    for number, ledger_id, entry_id, received_us, acked_us in on_time(workload):
        if number not in missing:
            moved_us = received_us - (2_001 if number in early else 0)
            rows.append((number, ledger_id, entry_id, moved_us, acked_us))
            if number in again:
                rows.append((number, ledger_id, entry_id, received_us + 50, acked_us))
    order = data.draw(st.permutations(rows))

    result = audited(workload, list(order), broker_outage(7, 12))

    assert result.lost == len(missing)
    assert result.delivered == len(expected) - len(missing)
    assert result.early == len(early - missing - {-1})
    assert result.repeats.total == len(again - missing)
    assert sum(each.count for each in result.by_cause.values()) == result.overall.count
    assert sum(each.count for each in result.by_kind.values()) == result.overall.count
    assert result.overall.count + result.plain == result.delivered
