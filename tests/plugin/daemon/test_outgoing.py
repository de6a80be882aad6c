"""Answers to OPEN come in steps, however large: over a real index in memory; each frame moves the clock."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.support.shim_client import GENERATION, INCARNATION, NO_POSITION
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon.outgoing import STEP_NS, Answers
from tidegate.plugin.daemon.session import Session
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.codec import decode
from tidegate.plugin.wire.frames import FrameDecoder
from tidegate.plugin.wire.messages import Held, Open
from tidegate.plugin.wire.position_pieces import SET_CUT_LEDGERS

NAME = SubscriptionName("persistent://public/default/orders", "billing")
T0 = 1_800_000_000_000
FRAME_NS = 2_000_000
LEDGERS = 20 * SET_CUT_LEDGERS


class Peer:
    """Takes the frames of the answers, and notes in which turn of the loop each came."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.turn = 0
        self.turns: list[int] = []
        self.held = PositionSet()
        self.last = False
        self._decoder = FrameDecoder()

    def write(self, data: bytes) -> None:
        self.turns.append(self.turn)
        self.clock.work(FRAME_NS)
        for frame in self._decoder.feed(memoryview(data)):
            message = decode(frame)
            assert isinstance(message, Held)
            assert not self.last
            assert len(message.held.ledgers()) <= SET_CUT_LEDGERS
            self.held.update(message.held)
            self.last = message.last


def opened(catalog: Catalog) -> Stream:
    request = Open(INCARNATION, 1, GENERATION, 0, 9, NO_POSITION, *NAME, PositionSet())
    session = Session(1, catalog.subscription(NAME, INCARNATION), request, credit_max=9)
    return Stream(cast("Link", None), session)  # the answers never ask for it


async def test_a_large_answer_is_encoded_in_steps_and_says_what_was_held_at_its_beginning() -> None:
    clock = ManualClock(T0)
    catalog = Catalog.open(MemoryStore(), clock)
    index = catalog.subscription(NAME, INCARNATION)
    index.add(Entries.of((T0 + 60_000, ledger_id, 0) for ledger_id in range(LEDGERS)))
    begun = index.state.held.snapshot()
    stream, peer = opened(catalog), Peer(clock)
    sent: list[Stream] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answered(one: Stream) -> None:
        sent.append(one)
        done.set()

    answers = Answers(
        clock,
        loop,
        Metrics(lambda: "test"),
        write=peer.write,
        may_write=lambda: True,
        is_open=lambda _: True,
        sent=answered,
        failed=lambda stream, error: pytest.fail(f"{stream}: {error}"),
    )

    def next_turn() -> None:
        peer.turn += 1
        if not done.is_set():
            loop.call_soon(next_turn)

    answers.answer_open(stream)
    next_turn()
    index.mark_delete(LEDGERS // 2, 0)  # between two steps
    assert not stream.session.hands_out
    await done.wait()
    assert peer.last
    assert sent == [stream]
    assert stream.session.hands_out
    assert peer.held == begun
    most = max(peer.turns.count(turn) for turn in set(peer.turns))
    assert most * FRAME_NS <= STEP_NS + FRAME_NS
