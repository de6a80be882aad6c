"""The verdict on a round, from ledgers made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.ledgers import HandMade, at_us, finished, round_of
from tidegate.plugin.drill.catalogue import named
from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.drill.plan import FAR_MS, Kind
from tidegate.plugin.drill.repeats import Cause
from tidegate.plugin.drill.verdict import Verdict, Wait, judge, reached_us


def test_a_good_round_passes_and_says_how_long_the_outage_was(tmp_path: Path) -> None:
    verdict = judge(finished(tmp_path / "ledger"))
    assert verdict.passed, verdict.reasons
    assert (verdict.sent, verdict.received) == (200, 200)
    assert (verdict.lost, verdict.early, verdict.repeated) == (0, 0, 0)
    assert verdict.gap_s == pytest.approx(2.1)
    assert verdict.first_due_s == pytest.approx(2.1)
    assert verdict.first_due_after_usable_s == pytest.approx(0.1)
    assert verdict.down_s == pytest.approx(2.0)
    assert verdict.lateness_ms is not None
    assert verdict.lateness_ms.p50 == pytest.approx(2.0)
    assert verdict.lateness_ms.max == pytest.approx(2_100.0)


def test_what_came_while_the_fault_was_being_done_is_not_the_first_due_message(tmp_path: Path) -> None:
    """A kill takes a moment; a message due within it may still come."""
    made = HandMade(tmp_path / "ledger", [4.02, 4.2, 4.3])
    made.confirm([0, 1, 2])
    made.strike(4.0, 9.0, done_s=4.1)
    made.receive(0, 4.021)
    made.receive(1, 9.5)
    made.receive(2, 9.6)
    verdict = judge(made.read())
    assert verdict.first_due_s == pytest.approx(5.4)
    assert verdict.first_due_after_usable_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("due_s", "burst", "reasons"),
    [
        (4.05, False, ["nothing was due after the fault: the round proves nothing"]),
        (4.1, False, []),
        # All of a burst is due at one instant, and its fault lasts from before it until after it.
        (4.05, True, []),
    ],
)
def test_a_round_in_which_nothing_was_due_after_the_fault_fails(
    tmp_path: Path, due_s: float, burst: bool, reasons: list[str]
) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, due_s], replace(round_of(), burst=burst))
    made.confirm([0, 1])
    made.receive(0, 1.0)
    made.strike(4.0, 6.0, done_s=4.1)
    made.receive(1, 6.2)
    assert judge(made.read()).reasons == reasons


def test_what_was_lost_after_the_fault_was_due_after_it(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [8.0])
    made.confirm([0])
    made.strike(4.0, 6.0)
    assert judge(made.read()).reasons == ["1 messages were lost"]


def test_early_lost_and_unconfirmed_fail(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 2.0, 3.0, 4.0])
    made.confirm([0, 1, 2])
    made.receive(0, 1.0)
    made.receive(1, 1.9995)
    verdict = judge(made.read())
    assert not verdict.passed
    assert (verdict.early, verdict.lost, verdict.unconfirmed) == (1, 1, 1)
    assert verdict.earliest_ms == pytest.approx(0.5)
    told = " ".join(verdict.reasons)
    assert "1 messages were lost" in told
    assert "1 messages came early" in told
    assert "never confirmed" in told


@pytest.mark.parametrize(
    ("early_s", "reasons"),
    [
        ([0.0, 0.9, 0.9], []),
        ([0.0, 1.1, 0.9], ["1 messages came early, by 1,100 ms at most"]),
        # Before the first fault nothing has another tracker.
        ([0.1, 0.9, 0.9], ["1 messages came early, by 900 ms at most"]),
    ],
)
def test_early_ones_of_pulsars_tracker_are_counted_and_permitted(
    tmp_path: Path, early_s: list[float], reasons: list[str]
) -> None:
    made = HandMade(tmp_path / "ledger", [2.0, 10.0, 12.0], replace(round_of(), early_ms=1_000))
    made.confirm([0, 1, 2])
    made.strike(4.0, 6.0)
    for number, due_s in enumerate((2.0, 10.0, 12.0)):
        made.receive(number, due_s - early_s[number])
    verdict = judge(made.read())
    assert verdict.reasons == reasons
    assert verdict.early == sum(one > 0 for one in early_s)


def test_a_burst_of_which_a_part_was_stored_too_late_was_not_done(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 1.0], replace(round_of(), burst=True))
    made.confirm([0])
    made.confirm([1], second=1.5)
    for number in (0, 1):
        made.receive(number, 1.6)
    assert judge(made.read()).reasons == [
        "1 messages were stored only after they were due: the burst was not done"
    ]


def test_what_is_due_tomorrow_must_stay_where_it_is(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, FAR_MS / 1000])
    made.confirm([0, 1])
    made.receive(0, 1.01)
    made.at(5.0).event("far", held=0)
    verdict = judge(made.read())
    assert (verdict.sent, verdict.lost, verdict.not_due, verdict.not_due_held) == (1, 0, 1, 0)
    assert verdict.reasons == ["of 1 messages not due yet only 0 are held"]


@pytest.mark.parametrize(
    ("received_s", "acked_s", "cause"),
    [
        (3.99, -1.0, Cause.IN_FLIGHT),
        (3.95, 4.2, Cause.IN_FLIGHT),
        (3.95, 3.95, Cause.IN_FLIGHT),
        (3.5, 3.5, Cause.UNPERSISTED),
        (2.5, 2.5, Cause.HOLE),
    ],
)
def test_a_repeat_over_a_kill_has_a_cause(
    tmp_path: Path, received_s: float, acked_s: float, cause: Cause
) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 8.0])
    made.confirm([0, 1])
    made.strike(4.0, 6.0)
    made.receive(1, 8.0)
    made.receive(0, received_s, acked_s=acked_s)
    made.receive(0, 6.5)
    verdict = judge(made.read())
    assert verdict.repeated == 1
    assert verdict.repeated_by_cause == {one.value: int(one is cause) for one in Cause}
    assert verdict.passed == (cause is not Cause.HOLE)


def test_a_message_without_a_delay_comes_again_by_pulsars_own_doing(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [None, 8.0])
    made.confirm([0, 1])
    made.strike(4.0, 6.0)
    made.receive(1, 8.0)
    made.receive(0, 0.5)
    made.receive(0, 6.5)
    verdict = judge(made.read())
    assert verdict.repeated_by_cause["plain_message"] == verdict.repeated == 1
    assert verdict.passed, verdict.reasons
    assert verdict.kinds.keys() == {Kind.DELAYED}
    assert (verdict.early, verdict.received) == (0, 2)


def test_a_message_without_a_delay_is_lost_like_any_other(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [None, 1.0])
    made.confirm([0, 1])
    made.receive(1, 1.0)
    assert judge(made.read()).lost == 1


@pytest.mark.parametrize(
    ("due_s", "received_s", "wait"),
    [
        (5.0, 5.1, Wait.USUAL),
        (9.99, 21.0, Wait.FAULT),
        (15.0, 21.5, Wait.FAULT),
        (20.2, 21.4, Wait.CATCHING_UP),
        (25.0, 25.1, Wait.USUAL),
        (30.5, 30.6, Wait.FAULT),
    ],
)
def test_why_a_message_was_late(tmp_path: Path, due_s: float, received_s: float, wait: Wait) -> None:
    # The second message ends the catching up at 21.5 s.
    made = HandMade(tmp_path / "ledger", [due_s, 19.9])
    verdict = after_two_kills(made, [received_s, 21.5])
    expected = [wait, Wait.FAULT]
    assert {one: part.count for one, part in verdict.waits.items() if part.count} == {
        one: expected.count(one) for one in set(expected)
    }
    assert sum(one.waited.count for one in verdict.recoveries) == expected.count(Wait.FAULT)


def test_a_message_stored_only_after_it_was_due_is_late_for_that(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0])
    made.confirm([0], second=3.0)
    made.receive(0, 3.1)
    assert judge(made.read()).waits[Wait.STORED_LATE].count == 1


def test_a_burst_is_not_steady(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [5.0, 5.0], kinds=[Kind.BURST, Kind.RETRY])
    made.confirm([0, 1])
    made.receive(0, 7.0)
    made.receive(1, 5.001)
    verdict = judge(made.read())
    assert verdict.waits[Wait.USUAL].max_ms == pytest.approx(2000)
    assert verdict.steady.max_ms == pytest.approx(1)
    assert {kind: one.count for kind, one in verdict.kinds.items()} == {Kind.BURST: 1, Kind.RETRY: 1}


def test_each_fault_has_its_own_recovery(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [15.0, 30.2, 40.0])
    verdict = after_two_kills(made, [20.5, 30.3, 40.0])
    broker, daemon = verdict.recoveries
    assert broker.first_due_s == pytest.approx(10.5)
    assert broker.first_due_after_usable_s == pytest.approx(0.5)
    assert (broker.due_meanwhile, broker.due_afterwards, broker.received_meanwhile) == (1, 3, 0)
    assert daemon.first_due_s == pytest.approx(0.3)
    assert daemon.received_meanwhile == 1
    assert verdict.first_due_s == pytest.approx(10.5)


def test_nothing_came_any_more_after_a_fault(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [15.0])
    (recovery, _) = after_two_kills(made, []).recoveries
    assert (recovery.first_due_s, recovery.first_due_after_usable_s) == (None, None)
    assert recovery.due_afterwards == 1


def after_two_kills(made: HandMade, received_s: list[float]) -> Verdict:
    """Of a broker that was away from 10 to 20 s, and a daemon from 30 to 31 s."""
    made.confirm(range(len(received_s) or 1))
    made.strike(10.0, 20.0)
    made.strike(30.0, 31.0, forgets=Forgets.NOTHING, what="kill -9 of the daemon")
    for number, second in enumerate(received_s):
        made.receive(number, second)
    return judge(made.read())


def test_a_repeat_without_a_fault_in_between_is_the_trackers(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [5.0])
    made.confirm([0])
    made.strike(4.0, 6.0)
    made.receive(0, 7.0)
    made.receive(0, 7.5)
    verdict = judge(made.read())
    assert verdict.repeated_by_cause["tracker"] == 1
    assert verdict.reasons == ["1 messages came again that should not have (tracker)"]


def test_a_fault_that_forgets_nothing_excuses_no_acknowledged_repeat(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0])
    made.confirm([0])
    made.strike(4.0, 6.0, forgets=Forgets.NOTHING)
    made.receive(0, 3.0)
    made.receive(0, 6.5)
    assert judge(made.read()).repeated_by_cause["tracker"] == 1


def test_a_message_stored_twice_is_the_producers(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0])
    made.confirm([0])
    made.receive(0, 1.0)
    made.receive(0, 1.1, entry_id=50)
    verdict = judge(made.read())
    assert (verdict.repeated, verdict.sent_twice, verdict.passed) == (0, 1, True)


def test_after_a_rewind_everything_stored_before_must_come_again(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 1.0, 1.0])
    made.confirm([0, 1])
    made.confirm([2], second=5.0)
    for number in (0, 1):
        made.receive(number, 2.0)
    made.strike(4.0, 6.0, forgets=Forgets.NOTHING, rewinds=True)
    made.receive(0, 6.5)
    made.receive(2, 6.5)
    verdict = judge(made.read())
    assert verdict.lost == 1, "number 1 was there before the cursor was set back, and did not come again"
    assert verdict.repeated_by_cause["rewound"] == 1


@pytest.mark.parametrize(("attempts_s", "lost"), [((), 0), ((4.2,), 0), ((5.0,), 1), ((4.2, 5.0), 1)])
def test_after_a_rewind_what_came_before_its_last_attempt_has_not_come_again(
    tmp_path: Path, attempts_s: tuple[float, ...], lost: int
) -> None:
    """A broker took the reset only at the last attempt; ledgers of before have none, and count from the
    fault.
    """
    made = HandMade(tmp_path / "ledger", [1.0, 1.0])
    made.confirm([0, 1])
    made.at(4.0).event("strike", what="seek", forgets=Forgets.ORDERLY, rewinds=True)
    made.receive(0, 4.3)
    for attempt_s in attempts_s:
        made.at(attempt_s).event("rewinding")
    made.receive(1, 5.1)
    made.at(5.2).event("done", evidence="seen")
    made.at(5.5).event("back")
    verdict = judge(made.read())
    assert verdict.lost == lost
    assert (f"{lost} messages were lost" in verdict.reasons) == bool(lost)


def test_after_a_rewind_what_was_stored_before_its_last_attempt_must_come_again(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0])
    made.at(4.0).event("strike", what="seek", forgets=Forgets.ORDERLY, rewinds=True)
    made.confirm([0], second=4.1)
    made.receive(0, 4.3)
    made.at(5.0).event("rewinding")
    made.at(5.5).event("back")
    assert judge(made.read()).lost == 1


def test_a_round_that_was_cut_off_fails(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0])
    made.confirm([0])
    made.receive(0, 1.0)
    assert judge(made.read(end=False)).reasons == ["the drill itself ended before the round did"]


def test_what_was_not_due_when_a_round_was_cut_off_is_not_lost(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 2.0, 18.0, 40.0, 41.0])
    made.confirm([0, 1, 2, 3])
    made.receive(0, 20.0)
    verdict = judge(made.read(end=False))
    assert verdict.lost == 1
    assert verdict.reasons == ["the drill itself ended before the round did", "1 messages were lost"]


def test_a_fault_that_could_not_be_done_fails_with_its_words(tmp_path: Path) -> None:
    def fail(made: HandMade) -> None:
        made.at(9.0).event("failure", text="the broker should be gone and is running")

    verdict = judge(finished(tmp_path / "ledger", change=fail))
    assert verdict.reasons == ["the broker should be gone and is running"]


def test_entries_read_again_are_those_that_no_sending_and_no_delivery_explains(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 5.0, 6.0])
    made.confirm([0, 1])
    made.confirm([2], second=4.5)
    made.receive(0, 1.0)
    made.at(3.9).event("reads", counts={"a, pid 1": 70, "b, pid 2": 5})
    made.strike(4.0, 6.0)
    for number in (1, 2):
        made.receive(number, 6.1)
    # Each count is of one run of a broker; one that has fallen has begun anew.
    made.at(7.0).event("reads", counts={"a, pid 3": 100, "b, pid 2": 11, "a, pid 3, ahead": 50})
    made.at(90.0).event("reads", counts={"a, pid 3": 102, "b, pid 2": 11, "a, pid 3, ahead": 4})
    verdict = judge(made.read())
    assert verdict.entries_read == 102 + (11 - 5) + (50 + 4)
    assert verdict.read_again == verdict.entries_read - 1 - 2


def test_entries_read_again_in_a_drill_without_a_fault_are_those_of_the_round(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0])
    made.confirm([0])
    made.receive(0, 1.0)
    made.at(90.0).event("reads", counts={"pid 3": 9})
    record = made.read()
    assert judge(record).read_again == 7
    assert judge(replace(record, reads=[])).read_again is None


def test_early_is_judged_by_the_brokers_clock(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [10.0, 10.0])
    made.confirm([0, 1])
    made.at(4.0).event("clock", ahead_us=5_000_000)
    made.receive(0, 5.1)  # the broker's clock shows 10.1 s
    made.receive(1, 4.9)  # it shows 9.9 s
    verdict = judge(made.read())
    assert verdict.early == 1
    assert verdict.earliest_ms == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("clock", "due_s", "reached_s"),
    [
        ([], 10.0, 10.0),
        ([(4.0, 5.0)], 10.0, 5.0),
        ([(4.0, 5.0)], 8.0, 4.0),  # the step itself passes it
        ([(4.0, 5.0)], 3.0, 3.0),
        ([(4.0, 5.0), (6.0, 0.0)], 10.5, 5.5),  # shown before the step back: that counts
        ([(4.0, 5.0), (6.0, 0.0)], 12.0, 12.0),
        ([(4.0, -5.0)], 10.0, 15.0),
        ([(4.0, -5.0), (8.0, 0.0)], 6.0, 8.0),
    ],
)
def test_when_a_stepped_clock_first_shows_a_moment(
    clock: list[tuple[float, float]], due_s: float, reached_s: float
) -> None:
    steps = [(at_us(at_s), round(ahead_s * 1e6)) for at_s, ahead_s in clock]
    assert reached_us(np.array([at_us(due_s)], np.int64), steps).tolist() == [at_us(reached_s)]


# Acknowledged so long before the fault (negative: while it lasted; None: not at all), and how many of each.
_AGES_S = {0.99: 1, 1.001: 2, 0.101: 4, 0.1: 8, 0.0: 16, -1.5: 32, None: 64}
_OLD, _SECOND, _UNDER_WAY = 2, 1 + 4, 8 + 16 + 32 + 64


@pytest.mark.parametrize(
    ("forgets", "expected"),
    [
        (Forgets.NOTHING, {Cause.TRACKER: _OLD + _SECOND + _UNDER_WAY}),
        (Forgets.UNDER_WAY, {Cause.IN_FLIGHT: _UNDER_WAY, Cause.TRACKER: _OLD + _SECOND}),
        (Forgets.ORDERLY, {Cause.IN_FLIGHT: _UNDER_WAY, Cause.HOLE: _OLD + _SECOND}),
        (
            Forgets.UNSTORED,
            {Cause.IN_FLIGHT: _UNDER_WAY, Cause.UNPERSISTED: _SECOND, Cause.HOLE: _OLD},
        ),
    ],
)
def test_each_fault_excuses_exactly_what_it_can_have_caused(
    tmp_path: Path, forgets: Forgets, expected: dict[Cause, int]
) -> None:
    """Of each age so many repeats that every count tells their causes."""
    total = sum(_AGES_S.values())
    made = HandMade(tmp_path / "ledger", [1.0] * total + [8.0])
    made.confirm(range(total + 1))
    made.strike(4.0, 6.0, forgets=forgets)
    made.receive(total, 8.0)
    ages_s = [age_s for age_s, count in _AGES_S.items() for _ in range(count)]
    for number, age_s in enumerate(ages_s):
        made.receive(number, 2.9, acked_s=-1.0 if age_s is None else 4.0 - age_s)
        made.receive(number, 6.5)
    verdict = judge(made.read())
    assert verdict.repeated == total
    assert verdict.repeated_by_cause == {cause.value: expected.get(cause, 0) for cause in Cause}
    failing = expected.get(Cause.HOLE, 0) + expected.get(Cause.TRACKER, 0)
    assert sum(int(reason.split()[0]) for reason in verdict.reasons) == failing


def test_what_came_after_everything_was_usable_again_has_no_excuse(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 1.0, 1.0])
    made.confirm([0, 1, 2])
    made.strike(4.0, 6.0)
    made.receive(0, 6.0)  # both after the fault
    made.receive(0, 6.5)
    made.receive(1, 3.0)  # both before it
    made.receive(1, 3.9)
    made.receive(2, 5.9)
    made.receive(2, 6.5)
    verdict = judge(made.read())
    assert (verdict.repeated_by_cause["tracker"], verdict.repeated_by_cause["in_flight"]) == (2, 1)


@pytest.mark.parametrize(
    ("drill", "forgets"),
    [
        ("broker-killed", Forgets.UNSTORED),
        ("both-killed", Forgets.UNSTORED),
        ("broker-paused", Forgets.UNSTORED),
        ("machine-lost", Forgets.UNSTORED),
        ("bookie-away", Forgets.UNSTORED),
        ("ack-holes", Forgets.ORDERLY),
        ("rolling-restart", Forgets.ORDERLY),
        ("bundle-moved", Forgets.ORDERLY),
        ("consumers-churning", Forgets.UNDER_WAY),
        ("data-directory-lost", Forgets.NOTHING),
        ("block-corrupted", Forgets.NOTHING),
        ("daemon-killed", Forgets.NOTHING),
        ("daemon-paused", Forgets.NOTHING),
        ("upgrade", Forgets.NOTHING),
        ("disk-full", Forgets.NOTHING),
        ("slow-consumer", Forgets.NOTHING),
        ("consumers-behind", Forgets.NOTHING),
        ("daemon-clock-ahead", Forgets.NOTHING),
        ("broker-clock-stepped", Forgets.NOTHING),
        ("bookie-slow", Forgets.NOTHING),
    ],
)
def test_what_a_drill_may_forget(drill: str, forgets: Forgets) -> None:
    assert {fault.forgets for fault in named(drill).faults} == {forgets}
