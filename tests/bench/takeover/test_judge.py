"""The bench `takeover` judges arrivals."""

from __future__ import annotations

from bench.takeover.judge import (
    Arrival,
    Outage,
    Outcome,
    came_at,
    earliest_past,
    first_after,
    judge,
    missing,
    quiet_ns,
    served_since,
)

MS = 1_000_000
FAULT_NS = 10_000 * MS


def arrival(
    number: int, at_ms: int, *, due_ms: int = 0, acked_ms: int | None = None, entry: int = -1
) -> Arrival:
    """A delivery, acknowledged at once unless told otherwise; each number has its own position."""
    acked_ns = (at_ms if acked_ms is None else acked_ms) * MS
    return Arrival(number, (1, number if entry < 0 else entry), due_ms, at_ms * MS, acked_ns)


def test_the_first_message_is_counted_from_the_moment_on() -> None:
    arrivals = [arrival(1, 9_999), arrival(2, 10_400), arrival(3, 10_200)]
    assert first_after(arrivals, FAULT_NS) == 10_200 * MS
    assert first_after(arrivals, 11_000 * MS) is None


def test_the_clock_runs_from_when_the_owner_has_the_consumer() -> None:
    assert served_since(client_ns=10, owner_ns=15, first_ns=20) == 15
    assert served_since(client_ns=10, owner_ns=None, first_ns=20) == 10
    assert served_since(client_ns=10, owner_ns=5, first_ns=20) == 10, "a consumer that was never gone"
    assert served_since(client_ns=10, owner_ns=25, first_ns=20) == 10, "it has connected once more"


def test_lost_is_what_is_due_and_has_not_come() -> None:
    due = {1: 10_000, 2: 10_500, 3: 12_000}
    assert missing(due, [arrival(1, 10_001)], now_ms=11_000) == {2}


def test_what_came_and_could_not_be_acknowledged_has_to_come_again() -> None:
    due = {1: 10_000, 2: 10_000}
    first = [arrival(1, 10_001, acked_ms=0), arrival(2, 10_001)]
    assert missing(due, first, now_ms=11_000) == {1}
    assert missing(due, [*first, arrival(1, 10_400)], now_ms=11_000) == set()


def test_what_is_due_past_the_horizon_is_the_first_that_only_a_daemon_can_have() -> None:
    due = {1: 12_000, 2: 12_300, 3: 12_250, 4: 60_000}
    assert earliest_past(due, 12_000) == 3, "not the one that is due just then, nor the first by number"
    assert earliest_past(due, 60_000) is None
    arrivals = [arrival(3, 12_900), arrival(3, 12_260), arrival(2, 12_255)]
    assert came_at(arrivals, 3) == 12_260 * MS
    assert came_at(arrivals, 4) is None


def test_quiet_is_since_the_last_acknowledgement() -> None:
    arrivals = [arrival(1, 9_500), arrival(2, 9_800, acked_ms=0), arrival(3, 10_100)]
    assert quiet_ns(arrivals, FAULT_NS) == 500 * MS
    assert quiet_ns([], FAULT_NS) == FAULT_NS


def test_repeats_are_told_apart_by_when_they_had_been_acknowledged() -> None:
    arrivals = [
        arrival(1, 9_000),  # long before
        arrival(2, 9_900),  # just before
        arrival(3, 9_900, acked_ms=0),  # never
        arrival(4, 10_100),  # after, and again
        *(arrival(number, 10_300) for number in (1, 2, 3, 4)),
    ]
    assert judge({}, arrivals, since_ns=FAULT_NS, now_ms=0) == Outcome(0, 0, 1, 2, 0, 1, oldest_ms=1_000)


def test_what_the_client_may_not_have_sent_is_told_apart() -> None:
    outages = [Outage(FAULT_NS, 10_300 * MS), Outage(12_000 * MS, 12_300 * MS)]
    arrivals = [
        arrival(1, 9_700),  # 0.3 s before the first outage
        arrival(2, 9_850),  # 0.15 s before it
        arrival(3, 9_950),  # in the client's hands
        arrival(4, 9_800, acked_ms=10_200),  # received before, acknowledged during it
        *(arrival(number, 10_400) for number in (1, 2, 3, 4)),
        arrival(5, 11_700),  # 0.3 s before the second one
        arrival(6, 11_950),  # in the client's hands
        arrival(7, 12_350),  # after both
        *(arrival(number, 12_400) for number in (5, 6, 7)),
    ]
    outcome = judge({}, arrivals, since_ns=FAULT_NS, now_ms=0, outages=outages)
    assert outcome == Outcome(
        0, 0, repeated_old=2, repeated_young=2, repeated_under_way=3, repeated_in_flight=0, oldest_ms=300
    )


def test_an_acknowledgement_on_its_way_is_no_excuse_without_an_outage_between() -> None:
    arrivals = [arrival(1, 9_950), arrival(1, 10_050)]
    late = [Outage(10_100 * MS, 10_300 * MS)]
    outcome = judge({}, arrivals, since_ns=FAULT_NS, now_ms=0, outages=late)
    assert (outcome.repeated_young, outcome.repeated_under_way) == (1, 0)


def test_what_was_repeated_before_the_fault_or_sent_twice_is_no_repeat() -> None:
    arrivals = [arrival(1, 9_000), arrival(1, 9_500), arrival(2, 10_100), arrival(2, 10_200, entry=77)]
    assert judge({}, arrivals, since_ns=FAULT_NS, now_ms=0) == Outcome(0, 0, 0, 0, 0, 0)


def test_what_was_taken_back_may_come_again_once() -> None:
    arrivals = [
        arrival(1, 9_000),
        arrival(1, 10_600),
        arrival(2, 10_100),
        arrival(2, 10_700),
        arrival(2, 10_800),
    ]
    outcome = judge({}, arrivals, since_ns=FAULT_NS, now_ms=0, taken_back_at_ns=10_500 * MS)
    assert (outcome.repeated_old, outcome.repeated_young) == (0, 1)


def test_early_is_before_deliver_at_by_the_clients_clock() -> None:
    arrivals = [
        arrival(1, 10_100, due_ms=10_101),
        arrival(2, 10_101, due_ms=10_101),
        arrival(3, 9_000, due_ms=9_500),
    ]
    assert judge({}, arrivals, since_ns=FAULT_NS, now_ms=0).early == 1
