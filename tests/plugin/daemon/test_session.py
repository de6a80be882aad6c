"""One stream's logic over a real index in memory, with a clock that the test moves."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from tests.support.catalogs import damage, stored
from tests.support.shim_client import GENERATION, INCARNATION, NO_POSITION, entries
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon.histories import Break
from tidegate.plugin.daemon.session import Change, Session
from tidegate.plugin.errors import ErrorCode, ProtocolError, StreamError
from tidegate.plugin.wire.messages import Ack, Add, Clear, Close, MarkDelete, Move, Open, Unack

NAME = SubscriptionName("persistent://public/default/orders", "billing")
T0 = 1_800_000_000_000


@pytest.fixture
def catalog() -> Catalog:
    return Catalog.open(MemoryStore(), ManualClock(T0))


def request(
    *,
    credit: int = 100,
    horizon_ms: int = 0,
    in_flight: PositionSet | None = None,
    mark_delete: tuple[int, int] = NO_POSITION,
    incarnation: bytes = INCARNATION,
    generation: int = GENERATION,
    epoch: int = 1,
    claims: tuple[int, ...] = (),
    end: tuple[int, int] = NO_POSITION,
) -> Open:
    return Open(
        incarnation,
        epoch,
        generation,
        horizon_ms,
        credit,
        mark_delete,
        NAME.topic,
        NAME.subscription,
        in_flight or PositionSet(),
        claims=claims,
        end=end,
    )


def open_session(catalog: Catalog, asked: Open | None = None, *, answered: bool = True) -> Session:
    asked = asked or request()
    session = Session(1, catalog.subscription(NAME, asked.incarnation), asked, credit_max=1_000)
    if answered:
        list(session.held_frames())
    return session


def positions(session_entries: Entries) -> list[tuple[int, int]]:
    return [(ledger_id, entry_id) for _, ledger_id, entry_id in session_entries]


def test_entries_come_when_due_and_once(catalog: Catalog) -> None:
    session = open_session(catalog)
    session.apply_frame(1, Add(entries(3, T0 + 10, step_ms=10), near=False), 0)
    assert session.wake_at_ms() == T0 + 10
    assert not len(session.pop_due(T0 + 9, 10))
    assert positions(session.pop_due(T0 + 20, 10)) == [(1, 0), (1, 1)]
    assert not len(session.pop_due(T0 + 20, 10))
    assert session.wake_at_ms() == T0 + 30


def test_the_horizon_moves_everything_forward(catalog: Catalog) -> None:
    session = open_session(catalog, request(horizon_ms=2_000))
    session.apply_frame(1, Add(entries(1, T0 + 5_000), near=False), 0)
    assert session.wake_at_ms() == T0 + 3_000
    assert not len(session.pop_due(T0 + 2_999, 10))
    assert len(session.pop_due(T0 + 3_000, 10)) == 1


def test_credit_bounds_what_is_handed_out(catalog: Catalog) -> None:
    session = open_session(catalog, request(credit=2))
    session.apply_frame(1, Add(entries(5, T0), near=False), 0)
    assert positions(session.pop_due(T0, 10)) == [(1, 0), (1, 1)]
    assert session.wake_at_ms() is None
    assert not len(session.pop_due(T0, 10))
    session.add_credit(1)
    assert session.wake_at_ms() == T0
    assert positions(session.pop_due(T0, 10)) == [(1, 2)]
    session.add_credit(2**32 - 1)
    assert session.credit == 1_000


def test_nothing_is_handed_out_before_the_answer(catalog: Catalog) -> None:
    session = open_session(catalog, answered=False)
    session.apply_frame(1, Add(entries(1, T0), near=False), 0)
    assert session.wake_at_ms() is None
    assert not len(session.pop_due(T0, 10))
    list(session.held_frames())
    assert len(session.pop_due(T0, 10)) == 1


def test_near_entries_are_held_but_not_handed_out(catalog: Catalog) -> None:
    session = open_session(catalog)
    session.apply_frame(1, Add(entries(2, T0), near=True), 0)
    assert not len(session.pop_due(T0, 10))
    again = open_session(catalog)
    assert len(again.pop_due(T0, 10)) == 2, "a new stream hands them out: nobody said they were in flight"


def test_what_is_in_flight_is_held_but_not_handed_out(catalog: Catalog) -> None:
    open_session(catalog).apply_frame(1, Add(entries(4, T0), near=False), 0)
    session = open_session(catalog, request(in_flight=PositionSet.of([(1, 1), (1, 3), (7, 7)])))
    assert positions(session.pop_due(T0, 10)) == [(1, 0), (1, 2)]


def test_what_is_in_flight_and_was_lost_is_not_handed_out_when_it_is_added_again(catalog: Catalog) -> None:
    session = open_session(catalog, request(in_flight=PositionSet.of([(1, 1)])))
    session.apply_frame(1, Add(entries(3, T0), near=False), 0)
    assert len(session.index.state.held) == 3
    assert positions(session.pop_due(T0, 10)) == [(1, 0), (1, 2)]


@pytest.mark.parametrize(
    "change",
    [
        Ack(PositionSet.of([(1, 1)])),
        Unack(PositionSet.of([(1, 1)])),
        Clear(),
        MarkDelete((1, 1)),
        Add(entries(3, T0), near=False),
    ],
    ids=lambda change: change.type.name,
)
def test_that_ends_with_any_other_change_of_it_so_that_it_is_never_stuck(
    catalog: Catalog, change: Change
) -> None:
    session = open_session(catalog, request(in_flight=PositionSet.of([(1, 1)])))
    session.apply_frame(1, change, 0)
    session.apply_frame(2, Clear(), 0)
    session.apply_frame(3, Unack(PositionSet.of([(1, 1)])), 0)
    session.apply_frame(4, MarkDelete(NO_POSITION), 0)
    session.apply_frame(5, Add(entries(3, T0), near=False), 0)
    assert positions(session.pop_due(T0, 10)) == [(1, 0), (1, 1), (1, 2)]


def test_what_was_in_flight_and_is_moved_is_handed_out_at_its_new_time(catalog: Catalog) -> None:
    """Also if the entry of its former time comes after the move."""
    session = open_session(catalog, request(in_flight=PositionSet.of([(1, 1)])))
    session.apply_frame(1, Move(Entries.of([(T0 + 5, 1, 1)]), near=False), 0)
    session.apply_frame(2, Add(entries(3, T0), near=False), 0)
    assert positions(session.pop_due(T0, 10)) == [(1, 0), (1, 2)]
    assert positions(session.pop_due(T0 + 5, 10)) == [(1, 1)]


def test_the_answer_tells_what_is_held_and_acknowledged(catalog: Catalog) -> None:
    session = open_session(catalog)
    session.apply_frame(1, Add(entries(4, T0), near=False), 0)
    session.apply_frame(2, Ack(PositionSet.of([(1, 2), (9, 9)])), 0)
    (answer,) = open_session(catalog, answered=False).held_frames()
    assert answer.last
    assert list(answer.held) == [(1, 0), (1, 1), (1, 3)]
    assert list(answer.acknowledged) == [(1, 2), (9, 9)]


def test_an_empty_answer_is_one_last_frame(catalog: Catalog) -> None:
    (answer,) = open_session(catalog, answered=False).held_frames()
    assert answer.last
    assert not answer.held
    assert not answer.acknowledged


def test_a_great_answer_is_cut_and_only_its_end_is_last(catalog: Catalog) -> None:
    scattered = PositionSet.of_bitmaps(
        {ledger_id: BitMap(range(0, 131_072, 2)) for ledger_id in range(1, 100)}
    )
    open_session(catalog).apply_frame(1, Ack(scattered), 0)
    answers = list(open_session(catalog, answered=False).held_frames())
    assert len(answers) > 1
    assert [answer.last for answer in answers] == [False] * (len(answers) - 1) + [True]
    together = PositionSet()
    for answer in answers:
        together.update(answer.acknowledged)
    assert together == scattered


def test_the_mark_delete_position_of_open_counts(catalog: Catalog) -> None:
    open_session(catalog).apply_frame(1, Add(entries(4, T0), near=False), 0)
    session = open_session(catalog, request(mark_delete=(1, 1)))
    assert positions(session.pop_due(T0, 10)) == [(1, 2), (1, 3)]


def test_another_incarnation_starts_empty(catalog: Catalog) -> None:
    open_session(catalog).apply_frame(1, Add(entries(4, T0), near=False), 0)
    (answer,) = open_session(catalog, request(incarnation=b"x" * 16), answered=False).held_frames()
    assert not answer.held


def test_changes_of_every_kind(catalog: Catalog) -> None:
    session = open_session(catalog)
    session.apply_frame(1, Add(entries(6, T0), near=False), 0)
    session.apply_frame(2, Ack(PositionSet.of([(1, 1)])), 0)
    session.apply_frame(3, Unack(PositionSet.of([(1, 1)])), 0)
    session.apply_frame(4, MarkDelete((1, 0)), 0)
    assert list(session.index.state.held) == [(1, 2), (1, 3), (1, 4), (1, 5)]
    assert not session.index.state.acknowledged
    session.apply_frame(5, Clear(), 0)
    assert not session.index.state.held


@pytest.mark.parametrize("seq", [0, 1, 3, 2**64 - 1])
def test_a_seq_that_is_not_the_next_is_refused_and_changes_nothing(catalog: Catalog, seq: int) -> None:
    session = open_session(catalog)
    session.apply_frame(1, Add(entries(1, T0), near=False), 0)
    with pytest.raises(ProtocolError) as refused:
        session.apply_frame(seq, Clear(), 0)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER
    assert len(session.index.state.held) == 1


def test_a_frame_is_durable_only_after_a_commit_that_covers_it(catalog: Catalog) -> None:
    session = open_session(catalog)
    before = catalog.commit()
    session.apply_frame(1, Add(entries(1, T0), near=False), received_ns=100)
    session.apply_frame(2, Add(entries(1, T0, first_entry=1), near=False), received_ns=200)
    assert session.undurable_frames == 2
    assert session.durable(before) is None
    news = session.durable(catalog.commit())
    assert news is not None
    assert (news.seq, news.received_ns) == (2, 100)
    assert session.durable(catalog.journal.durable_token) is None


def test_adding_again_what_is_not_durable_yet_is_not_durable_either(catalog: Catalog) -> None:
    before = catalog.commit()
    open_session(catalog).apply_frame(1, Add(entries(1, T0), near=False), 0)
    again = open_session(catalog)
    again.apply_frame(1, Add(entries(1, T0), near=False), 0)
    assert again.durable(before) is None
    assert again.durable(catalog.commit()) is not None


def test_after_close_nothing_is_taken_or_handed_out(catalog: Catalog) -> None:
    session = open_session(catalog)
    session.apply_frame(1, Add(entries(1, T0), near=False), 0)
    session.apply_frame(2, Close(), 0)
    assert not len(session.pop_due(T0, 10))
    with pytest.raises(StreamError) as refused:
        session.apply_frame(3, Clear(), 0)
    assert refused.value.code == ErrorCode.UNKNOWN_STREAM
    news = session.durable(catalog.commit())
    assert news is not None
    assert news.seq == 2


def test_a_superseded_tracker_still_takes_acknowledgements(catalog: Catalog) -> None:
    old = open_session(catalog)
    old.apply_frame(1, Add(entries(2, T0), near=False), 0)
    new = open_session(catalog)
    old.supersede()
    old.apply_frame(2, Ack(PositionSet.of([(1, 0)])), 0)
    assert not len(old.pop_due(T0, 10))
    assert positions(new.pop_due(T0, 10)) == [(1, 1)]


def test_a_superseded_tracker_does_not_take_the_mark_delete_position_back(catalog: Catalog) -> None:
    """Its successor has told a later one: going back would make all acknowledgements forgotten."""
    old = open_session(catalog)
    old.apply_frame(1, Add(entries(100, T0), near=False), 0)
    old.apply_frame(2, Ack(PositionSet.of((1, entry_id) for entry_id in range(50, 60))), 0)
    new = open_session(catalog, request(mark_delete=(1, 20)))
    old.supersede()
    old.apply_frame(3, MarkDelete((1, 10)), 0)
    assert new.index.state.mark == (1, 20)
    assert len(new.index.state.acknowledged) == 10
    old.apply_frame(4, MarkDelete((1, 30)), 0)
    assert new.index.state.mark == (1, 30)


def test_acknowledgements_are_told_to_the_same_generation_only(catalog: Catalog) -> None:
    acknowledged = PositionSet.of([(1, 0)])
    open_session(catalog).apply_frame(1, Ack(acknowledged), 0)
    (answer,) = open_session(catalog, answered=False).held_frames()
    assert answer.acknowledged == acknowledged
    (answer,) = open_session(catalog, request(generation=GENERATION + 1), answered=False).held_frames()
    assert not answer.acknowledged
    (answer,) = open_session(catalog, answered=False).held_frames()
    assert not answer.acknowledged, "forgotten for good"


@pytest.mark.parametrize(
    ("mark_delete", "generation", "kept"),
    [
        pytest.param((1, 3), GENERATION, False, id="restored from a backup"),
        pytest.param((1, 3), GENERATION + 1, True, id="a reset: another seal"),
        pytest.param((1, 3), 0, True, id="a reset: no seal"),
        pytest.param((1, 4), GENERATION, True, id="nothing has happened"),
        pytest.param((1, 5), GENERATION, True, id="went on elsewhere"),
        pytest.param(NO_POSITION, GENERATION, True, id="not known"),
    ],
)
def test_a_cursor_that_is_older_than_what_it_told_has_the_index_emptied(
    catalog: Catalog, mark_delete: tuple[int, int], generation: int, kept: bool
) -> None:
    """Pulsar was restored: what was in ledgers made since is something else in those that are made again."""
    session = open_session(catalog, request(mark_delete=(1, 1)))
    session.apply_frame(1, Add(entries(10, T0 + 10, step_ms=10), near=False), 0)
    session.apply_frame(2, Ack(PositionSet.of([(1, 8)])), 0)
    session.apply_frame(3, MarkDelete((1, 4)), 0)
    again = open_session(catalog, request(mark_delete=mark_delete, generation=generation), answered=False)
    (answer,) = again.held_frames()
    assert ((1, 7) in set(answer.held)) is kept
    assert (1, 8) not in set(answer.held)
    assert (again.found_break is Break.MARK_DELETE) is not kept
    if not kept:
        assert not answer.held
        assert not answer.acknowledged
    again.apply_frame(1, Add(entries(10, T0 + 10, step_ms=10), near=False), 0)
    assert (1, 9) in positions(again.pop_due(T0 + 1_000, 20))


@pytest.mark.parametrize(
    ("epoch", "claims", "end", "found"),
    [
        pytest.param(5, (4, 5), NO_POSITION, None, id="the same owner"),
        pytest.param(5, (4, 5), (1, 3), None, id="the same owner, when the topic was shorter"),
        pytest.param(6, (4, 5, 6), (1, 9), None, id="the next owner"),
        pytest.param(8, (5, 6, 7, 8), NO_POSITION, None, id="three owners later"),
        pytest.param(8, (), (1, 3), None, id="an owner that tells no claims"),
        pytest.param(5, (4, 55), (1, 9), Break.CLAIM, id="another owner of that epoch"),
        pytest.param(6, (4, 55, 6), (1, 9), Break.CLAIM, id="another owner of that epoch, and one more"),
        pytest.param(4, (4,), (1, 9), Break.EPOCH, id="an owner before it, again"),
        pytest.param(8, (6, 7, 8), (1, 9), Break.OLD, id="too many owners later"),
        pytest.param(6, (4, 5, 6), (1, 8), Break.END, id="the next owner, and the topic was shorter"),
        pytest.param(6, (4, 5, 6), (0, 99), Break.END, id="the next owner, and a ledger was not there"),
    ],
)
def test_what_another_history_told_is_not_believed(
    catalog: Catalog,
    epoch: int,
    claims: tuple[int, ...],
    end: tuple[int, int],
    found: Break | None,
) -> None:
    """Pulsar was restored: the same positions are other messages, and nothing of them was acknowledged."""
    session = open_session(catalog, request(epoch=5, claims=(4, 5)))
    session.apply_frame(1, Add(entries(10, T0 + 10, step_ms=10), near=False), 0)
    session.apply_frame(2, Ack(PositionSet.of([(1, 8), (1, 9)])), 0)
    again = open_session(catalog, request(epoch=epoch, claims=claims, end=end), answered=False)
    (answer,) = again.held_frames()
    assert again.found_break is found
    assert len(answer.held) == (8 if found is None else 0)
    assert len(answer.acknowledged) == (2 if found is None else 0)
    third = open_session(catalog, request(epoch=epoch, claims=claims, end=end))
    assert third.found_break is None, "it is this history's now"


@pytest.mark.parametrize(("end", "found"), [((1, 9), None), (NO_POSITION, None), ((1, 8), Break.END)])
def test_where_a_topic_ended_is_compared_though_nobody_knows_who_told_the_index(
    catalog: Catalog, end: tuple[int, int], found: Break | None
) -> None:
    """A rebuild has put entries in."""
    catalog.subscription(NAME, INCARNATION).add(entries(10, T0 + 10, step_ms=10))
    again = open_session(catalog, request(epoch=6, claims=(5, 6), end=end), answered=False)
    (answer,) = again.held_frames()
    assert again.found_break is found
    assert len(answer.held) == (10 if found is None else 0)


@pytest.mark.parametrize("kind", [keys.STATE, keys.JOURNAL])
def test_an_index_is_emptied_where_damage_has_taken_who_told_it(kind: bytes) -> None:
    """The topic may have been restored and have grown past all that the index knows."""
    store, clock = MemoryStore(), ManualClock(T0)
    catalog = Catalog.open(store, clock)
    session = open_session(catalog, request(epoch=5, claims=(5,)))
    session.apply_frame(1, Add(entries(10, T0 + 10, step_ms=10), near=False), 0)
    catalog.commit()
    if kind == keys.STATE:
        catalog.persist(session.name)
    key, _ = stored(store, kind)[0]
    damage(store, key)
    catalog = Catalog.open(store.reopen(), clock)
    other = request(epoch=5, claims=(55,), end=(7, 7))
    again = open_session(catalog, other, answered=False)
    (answer,) = again.held_frames()
    assert again.found_break is Break.LOST
    assert not answer.held
    assert open_session(catalog, other).found_break is None


def test_a_break_outlives_a_crash_right_after_it(catalog: Catalog) -> None:
    """The forgetting comes before the identity: with the latter alone, all of it would be believed."""
    store, clock = MemoryStore(), ManualClock(T0)
    catalog = Catalog.open(store, clock)
    session = open_session(catalog, request(epoch=5, claims=(5,)))
    session.apply_frame(1, Ack(PositionSet.of([(1, 8)])), 0)
    catalog.commit()
    other = request(epoch=5, claims=(55,))
    assert open_session(catalog, other).found_break is Break.CLAIM
    for _ in range(3):
        catalog = Catalog.open(store.reopen(), clock)
        again = open_session(catalog, other, answered=False)
        (answer,) = again.held_frames()
        assert not answer.acknowledged
        catalog.commit()
    assert again.found_break is None


def test_an_empty_index_was_not_rolled_back(catalog: Catalog) -> None:
    """Pulsar takes mark-delete out of an empty ledger that it removes at a start."""
    open_session(catalog, request(mark_delete=(2, -1)))
    assert open_session(catalog, request(mark_delete=(1, 4))).found_break is None


def test_a_cursor_without_a_seal_has_nothing_acknowledged(catalog: Catalog) -> None:
    open_session(catalog, request(generation=0)).apply_frame(1, Ack(PositionSet.of([(1, 0)])), 0)
    (answer,) = open_session(catalog, request(generation=0), answered=False).held_frames()
    assert not answer.acknowledged


def test_late_words_of_a_stream_do_not_count_once_the_cursor_was_reset(catalog: Catalog) -> None:
    """The topic was unloaded and loaded again, and reset in between: the old stream knows nothing of it."""
    old = open_session(catalog)
    old.apply_frame(1, Add(entries(3, T0), near=False), 0)
    new = open_session(catalog, request(generation=GENERATION + 1))
    old.supersede()
    old.apply_frame(2, Ack(PositionSet.of([(1, 0)])), 0)
    old.apply_frame(3, MarkDelete((1, 1)), 0)
    assert not new.index.state.acknowledged
    assert positions(new.pop_due(T0, 10)) == [(1, 0), (1, 1), (1, 2)]
    news = old.durable(catalog.commit())
    assert news is not None
    assert news.seq == 3, "they are answered all the same"


def test_what_a_former_stream_still_adds_is_handed_out_by_its_successor(catalog: Catalog) -> None:
    """The near tier that has it is gone: marked as with the broker, it would never come."""
    former = open_session(catalog, request(in_flight=PositionSet.of([(1, 2)])))
    session = open_session(catalog)
    former.supersede()
    former.apply_frame(1, Add(entries(2, T0), near=True), 0)
    former.apply_frame(2, Add(entries(1, T0, first_entry=2), near=False), 0)
    session.apply_frame(1, Add(entries(3, T0), near=False), 0)
    assert positions(session.pop_due(T0, 10)) == [(1, 0), (1, 1), (1, 2)]


def test_a_former_stream_clears_nothing_that_its_successor_was_told_is_held(catalog: Catalog) -> None:
    former = open_session(catalog)
    former.apply_frame(1, Add(entries(2, T0), near=False), 0)
    session = open_session(catalog)
    former.supersede()
    former.apply_frame(2, Clear(), 0)
    assert len(session.index.state.held) == 2
    assert len(session.pop_due(T0, 10)) == 2
    assert former.durable(catalog.commit()) is not None, "it is answered all the same"
