"""The home that a broker offers: nothing is asked on behalf of a stream that has ended."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.index.log.home import RefusedError
from tidegate.plugin.daemon.homes.broker_home import BrokerHome, LogRequests
from tidegate.plugin.wire.log_messages import LogAnswer, LogCode, LogOp, LogRequest


class Broker:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[LogOp, int, int]] = []
        self.requests = LogRequests(self.ask, asyncio.get_running_loop())

    def ask(self, request: LogRequest, stream_id: int, seq: int) -> None:
        self.asked.append((request.op, stream_id, seq))


def test_nothing_is_asked_for_a_stream_that_has_ended() -> None:
    async def run() -> None:
        broker = Broker()
        home = BrokerHome(broker.requests, 1)
        waiting = asyncio.ensure_future(home.create())
        await asyncio.sleep(0)
        broker.requests.end_stream(1)
        with pytest.raises(RefusedError):
            await waiting

        with pytest.raises(RefusedError):
            await home.delete(7)

        assert broker.asked == [(LogOp.CREATE, 1, 1)]

    asyncio.run(run())


def test_a_stream_that_is_opened_again_under_its_number_is_another_one() -> None:
    async def run() -> None:
        broker = Broker()
        former = BrokerHome(broker.requests, 1)
        broker.requests.end_stream(1)
        home = BrokerHome(broker.requests, 1)

        waiting = asyncio.ensure_future(home.create())
        await asyncio.sleep(0)
        broker.requests.answered(1, 1, LogAnswer(LogCode.OK, 12))

        assert await waiting == 12
        with pytest.raises(RefusedError):
            await former.create()

    asyncio.run(run())


def test_who_gives_up_waiting_is_not_told_that_the_stream_is_over() -> None:
    """It would take that for an answer, and go on."""

    async def run() -> None:
        broker = Broker()
        waiting = asyncio.ensure_future(BrokerHome(broker.requests, 1).create())
        await asyncio.sleep(0)
        waiting.cancel()
        broker.requests.end_stream(1)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
