"""docs/protocol.md is enough: a client written from it, and a real daemon killed with -9."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemons import DaemonProcess
from tests.support.page_client import (
    ACK,
    ADD,
    CLEAR,
    CLOSE,
    CONTROL,
    DISOWN,
    MARK_DELETE,
    NEAR,
    NOT_KNOWN,
    UNACK,
    PageClient,
    Record,
    positions,
)

Serve = Callable[..., DaemonProcess]
HOUR_MS = 3_600_000
STALE_EPOCH, MALFORMED = 7, 2


def records(count: int, ledger_id: int = 1, after_ms: int = HOUR_MS) -> list[Record]:
    at_ms = time.time_ns() // 1_000_000 + after_ms
    return [(ledger_id, entry_id, at_ms) for entry_id in range(count)]


def of_first(*entry_ids: int) -> set[tuple[int, int]]:
    return {(1, entry_id) for entry_id in entry_ids}


def mark(ledger_id: int, entry_id: int) -> bytes:
    return ledger_id.to_bytes(8, "little", signed=True) + entry_id.to_bytes(8, "little")


async def killed(daemon: DaemonProcess, serve: Serve) -> DaemonProcess:
    """Killed with -9 and started again, on the same data."""
    daemon.kill()
    again = serve()
    await again.ready()
    return again


async def test_what_a_broker_says_of_one_stream(serve: Serve, socket_path: Path) -> None:
    """HELD and the frames behind OPEN, mark-delete positions, former streams, zeros."""
    daemon = serve()
    await daemon.ready()
    with PageClient(socket_path) as broker, PageClient(socket_path, CONTROL, "control-1") as control:
        # Frames behind OPEN may be in HELD or not: the client applies to it those without DURABLE.
        stream = broker.begin_open(1)
        broker.add(stream, records(10))
        broker.change(stream, ACK, positions(of_first(0, 1)))
        broker.until(lambda: stream.answered)
        assert stream.held in (set(), of_first(*range(10)), of_first(*range(2, 10)))
        broker.durable(stream)
        told = control.positions()
        assert (told["held"], told["acknowledged"]) == (of_first(*range(2, 10)), of_first(0, 1))
        assert told["mark_delete"] == "-1:-1"

        # -1:-1, not known, is before all others: no acknowledgement is known then, and held positions stay.
        broker.change(stream, MARK_DELETE, mark(1, 2))
        broker.change(stream, ACK, positions(of_first(3)))
        broker.durable(stream)
        former = stream
        stream = broker.open(2, mark_delete=NOT_KNOWN)
        assert (stream.held, stream.acknowledged) == (of_first(*range(4, 10)), set())
        assert control.positions()["mark_delete"] == "-1:-1"
        broker.change(stream, MARK_DELETE, mark(1, 3))
        broker.durable(stream)

        # On the connection's former stream a lower one changes nothing; ADD, ACK and UNACK still count.
        broker.change(former, MARK_DELETE, mark(1, 0))
        broker.add(former, records(1, ledger_id=5), NEAR)
        broker.change(former, ACK, positions(of_first(4, 5)))
        broker.durable(former)
        told = control.positions()
        assert told["mark_delete"] == "1:3"
        assert told["held"] == of_first(*range(6, 10)) | {(5, 0)}
        assert told["acknowledged"] == of_first(4, 5)

        # Under another seal its ACK or MARK_DELETE changes nothing any more, an UNACK does.
        stream = broker.open(3, generation=8, mark_delete=(1, 3))
        assert stream.acknowledged == set()
        broker.change(stream, ACK, positions(of_first(6)))
        broker.durable(stream)
        broker.change(former, ACK, positions(of_first(7)))
        broker.change(former, MARK_DELETE, mark(1, 9))
        broker.durable(former)
        assert control.positions()["acknowledged"] == of_first(6)
        broker.change(former, UNACK, positions(of_first(6)))
        broker.change(former, CLEAR)
        broker.durable(former)
        told = control.positions()
        assert told["acknowledged"] == set(), "also what CLEAR of a former stream finds is forgotten"
        assert told["held"] == of_first(*range(7, 10)) | {(5, 0)}

        # On the current stream a lower one takes acknowledgements back; OPEN with it empties the index.
        broker.change(stream, ACK, positions(of_first(8)))
        broker.change(stream, MARK_DELETE, mark(1, 1))
        broker.durable(stream)
        told = control.positions()
        assert (told["mark_delete"], told["acknowledged"]) == ("1:1", set())
        stream = broker.open(4, generation=8, mark_delete=(1, 0))
        assert (stream.held, stream.acknowledged) == (set(), set())

        # Zeros name no life of a subscription; the connection goes on.
        refused = broker.open(5, incarnation=bytes(16))
        assert refused.error is not None
        assert refused.error[0] == MALFORMED
        broker.add(stream, records(3))
        broker.change(stream, CLOSE)
        broker.until(lambda: stream.closed)


async def test_what_a_kill_takes_back(serve: Serve, socket_path: Path) -> None:
    """The effects of OPEN are durable with the first DURABLE, a DISOWN with its REPLY."""
    daemon = serve()
    await daemon.ready()
    with PageClient(socket_path) as broker, PageClient(socket_path, CONTROL, "control-1") as control:
        stream = broker.open(1, epoch=5, claims=(11,), mark_delete=(1, 1))
        broker.add(stream, records(10))
        broker.durable(stream)
        control.take_in()
        assert control.ingest(records(4), DISOWN) == {"entries": 4, "disowned": 2}
        broker.until(lambda: bool(stream.unheld))
        assert stream.unheld == of_first(2, 3)
    daemon = await killed(daemon, serve)
    with PageClient(socket_path) as broker, PageClient(socket_path, CONTROL, "control-1") as control:
        told = control.positions()
        assert told["held"] == of_first(*range(4, 10))
        assert told["mark_delete"] == "1:1"
        # The daemon has seen no owner since its start: this one shows a restoration of Pulsar.
        stream = broker.open(1, epoch=4, claims=(10,))
        assert stream.held == set()
        broker.add(stream, records(1))
        broker.durable(stream)
        # It has seen one now: the smaller epoch is refused, whatever its claims.
        former = broker.open(2, epoch=3, claims=(9,))
        assert former.error is not None
        assert former.error[0] == STALE_EPOCH


async def test_what_is_in_flight_and_how_held_is_cut(serve: Serve, socket_path: Path) -> None:
    daemon = serve()
    await daemon.ready()
    with PageClient(socket_path) as broker, PageClient(socket_path, CONTROL, "control-1") as control:
        # In flight on this connection, whoever brings it to the index.
        stream = broker.open(1, in_flight=of_first(0, 2))
        control.take_in()
        assert control.ingest(records(4, after_ms=-1_000)) == {"entries": 4, "added": 4}
        broker.until(lambda: len(stream.due) == 2 and len(stream.held) == 4)
        assert [entry_id for _, entry_id, _ in stream.due] == [1, 3]

        many = [(ledger_id, 0, records(1)[0][2]) for ledger_id in range(100, 700)]
        broker.add(stream, many)
        broker.durable(stream)
        stream = broker.open(2)
        assert len(stream.held) == 604
        assert len(stream.set_bytes) == 2 * 5, "600 ledgers and one, 128 a set"
        assert max(stream.set_bytes) <= 1 << 20


@pytest.mark.parametrize("kind", [ADD, ACK])
async def test_a_gap_ends_the_connection(serve: Serve, socket_path: Path, kind: int) -> None:
    daemon = serve()
    await daemon.ready()
    with PageClient(socket_path) as broker:
        stream = broker.open(1)
        stream.seq += 1
        broker.change(stream, kind, positions([]) if kind == ACK else bytes(4))
        with pytest.raises(ConnectionError):
            broker.until(lambda: False)
        assert broker.error is not None
        assert broker.error[0] == 4
