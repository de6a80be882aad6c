"""The ledgers of an index log at a real bookie: a former owner is fenced, and blocks have their own."""

from __future__ import annotations

from pathlib import Path

from tests.support import placing_daemon
from tests.support.inbox import Inbox, assert_exactly
from tests.support.keeper import Keeper
from tests.support.lane import MINUTES_10_MS, SHARED, Lane
from tests.support.two_brokers import TwoBrokers
from tests.support.waiting import wait_until
from tidegate.index.log.pointer import Pointer
from tidegate.plugin.drill.faults.stored import damage_blocks
from tidegate.plugin.local.cluster import Node

INDEX_LOG = "bookkeeper"
# A daemon waits for its paused broker, and so goes on with the log that it was writing.
DAEMON_SETTINGS = {"heartbeat_ms": "30000"}
DAEMON_PROGRAM = Path(placing_daemon.__file__)
ADDED = "tidegate_entries_added_total"
RESTORED = "the index was restored from its log"
ALL_HERE = "all blocks of a restored index have arrived"
NOT_WRITTEN = "the index log cannot be written, trying again"


def test_what_a_paused_owner_writes_late_to_its_log_is_refused(two: TwoBrokers, lane: Lane) -> None:
    """Its session is over, its successor has opened its log, and it goes on as if nothing had happened."""
    count = 400
    evens = set(range(0, count, 2))
    at_a, at_b = Keeper(lambda uid: uid % 2 == 1), Keeper(lambda uid: False)
    two.move(lane.topic, two.a)
    with two.client_of(two.a.broker.service_url) as old, two.client_of(two.b.broker.service_url) as new:
        consumer = old.subscribe(
            lane.topic, "sub", SHARED, message_listener=at_a.listener, receiver_queue_size=count
        )
        lane.send_in(*[300] * count)
        at_a.wait_for(evens)
        far = lane.send_in(*[MINUTES_10_MS] * 100)
        wait_until(lambda: two.acknowledged(two.a, lane.topic) == len(evens), "daemon a knows the odd ones")
        two.wait_logged(two.a, lane.topic, len(far), or_more=True)
        of_a = two.log(two.a, lane.topic)["ledger_id"]
        lane.disconnect()
        lane.admin = two.admin_of(two.b)
        with two.a.broker.paused():
            at_a.acknowledge(consumer, 40)  # this is what it will want to write
            wait_until(lambda: two.owner(lane.topic, two.b) == two.b.broker.service_url, "broker b has it")
            consumer = new.subscribe(
                lane.topic, "sub", SHARED, message_listener=at_b.listener, receiver_queue_size=count
            )
            at_b.wait_for(evens)
            producer = new.create_producer(lane.topic)
            far += lane.send_in(*[MINUTES_10_MS] * 100, producer=producer)
            two.wait_logged(two.b, lane.topic, len(far), or_more=True)
            of_b = two.log(two.b, lane.topic)
            assert not two.said(two.a, lane.topic, NOT_WRITTEN)
        wait_until(lambda: two.said(two.a, lane.topic, NOT_WRITTEN), "daemon a is refused")
        assert "fenced" in two.said(two.a, lane.topic, NOT_WRITTEN)[0]["error"]
        two.wait_for_news(two.a, lane.topic, two.b)
        assert two.log(two.b, lane.topic)["pointer"] == of_b["pointer"]
        assert of_b["ledger_id"] != of_a
        assert at_b.kept.keys() == evens, "what daemon a knew acknowledged comes no more"
        at_b.acknowledge(consumer)
        lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "only the far ones are left")
        two.wait_logged(two.b, lane.topic, len(far))
        log = two.log(two.b, lane.topic)
        assert (log["pointer"], log["failure"]) == (of_b["pointer"], ""), "its log goes on"
        two.a.broker.stop()
    two.a.broker.start()

    lane.admin.unload(lane.topic)
    two.move(lane.topic, two.b)
    assert two.pointer(two.b, lane.topic) == of_b["pointer"], "as it is stored"
    for node in (two.b, two.a):
        two.move(lane.topic, node)
        inbox = Inbox()
        lane.subscribe(inbox)
        lane.finish_partly(inbox, lane.send_in(None, 200), left=len(far))
        lane.disconnect()


def test_blocks_in_ledgers_of_their_own(two: TwoBrokers, lane: Lane) -> None:
    """The log is read before the answer, the blocks come afterwards; all of it goes with the subscription."""
    before, inbox = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(before)
    first = lane.send_in(*[30_000] * 500)
    second = lane.send_in(*[60_000] * 500)
    far = lane.send_in(*range(MINUTES_10_MS, MINUTES_10_MS + 90_000, 30))
    two.wait_logged(two.a, lane.topic, len(first) + len(second) + len(far))
    wait_until(lambda: two.blocks(two.a, lane.topic), "there are blocks")
    lane.admin.unload(lane.topic)  # the next log begins with what is there
    far += lane.send_in(*[MINUTES_10_MS] * 100)
    two.wait_logged(two.a, lane.topic, len(first) + len(second) + len(far))
    assert len(_named(two, two.a, lane)) > 1, "there is a ledger of blocks"

    added = two.counted(two.b, ADDED)
    two.move(lane.topic, two.b)
    _wait_restored(two, two.b, lane)
    before.wait_for(first)
    lane.wait_stats(
        lambda now: now.backlog == now.delayed == len(second) + len(far), "the others are acknowledged"
    )
    two.wait_logged(two.b, lane.topic, len(second) + len(far))
    assert two.counted(two.b, ADDED) == added, "nothing is read again"

    added = two.counted(two.a, ADDED)
    two.b.daemon.kill()
    two.b.broker.kill()
    lane.disconnect()
    lane.subscribe(inbox)
    _wait_restored(two, two.a, lane)
    inbox.wait_for(second)
    assert two.counted(two.a, ADDED) == added, "nothing is read again"
    two.b.daemon.start()
    two.b.broker.start()
    lane.finish_partly(inbox, second, left=len(far))
    assert_exactly(before.arrivals, first)
    lane.not_early(before.arrivals)

    two.wait_logged(two.a, lane.topic, len(far))
    ledgers = two.log_ledgers(lane.topic)
    assert len(ledgers) > 1
    assert ledgers <= _named(two, two.a, lane), "each is named"
    lane.disconnect()
    lane.admin.delete_subscription(lane.topic, "sub")
    wait_until(lambda: not two.log_ledgers(lane.topic), "the ledgers of blocks are deleted, too")


def test_a_log_outlives_its_backlog_and_goes_with_its_subscription(two: TwoBrokers, lane: Lane) -> None:
    """Pulsar asks a tracker without consumers the same before both."""
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox())
    lane.wait_delayed(len(lane.send_in(*[MINUTES_10_MS] * 200)))
    two.wait_logged(two.a, lane.topic, 200)
    assert two.log_ledgers(lane.topic)
    lane.disconnect()
    lane.admin.clear_backlog(lane.topic, "sub")
    lane.wait_stats(lambda now: now.backlog == 0, "nothing is left")
    # It may go on in a new one already, and have deleted the former.
    assert two.log_ledgers(lane.topic)

    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 100)
    two.wait_logged(two.a, lane.topic, len(far))
    added = two.counted(two.b, ADDED)
    two.move(lane.topic, two.b)
    lane.finish_partly(inbox, lane.send_in(None, 200), left=len(far))
    assert two.counted(two.b, ADDED) <= added + 1, "the cleared log is read, and nothing else"

    lane.disconnect()
    lane.admin.delete_subscription(lane.topic, "sub")
    wait_until(lambda: not two.log_ledgers(lane.topic), "the subscription is gone, and so is its log")


def test_damaged_blocks_come_from_the_ledgers(two: TwoBrokers, lane: Lane) -> None:
    """Those of a daemon that goes on with its topic: it reads its own log, as a new owner would."""
    inbox = Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    due = lane.send_in(*[40_000] * 500)
    far = lane.send_in(*range(MINUTES_10_MS, MINUTES_10_MS + 90_000, 30))
    two.wait_logged(two.a, lane.topic, len(due) + len(far))
    wait_until(lambda: two.blocks(two.a, lane.topic), "there are blocks")
    lane.admin.unload(lane.topic)  # the next log begins with what is there
    far += lane.send_in(*[MINUTES_10_MS] * 100)
    two.wait_logged(two.a, lane.topic, len(due) + len(far))
    two.a.daemon.stop()
    assert damage_blocks(two.a.daemon.data_dir)
    two.a.daemon.start()
    _wait_restored(two, two.a, lane)
    inbox.wait_for(due)
    two.wait_logged(two.a, lane.topic, len(far))
    assert two.counted(two.a, ADDED) == 0, "nothing is read again"
    lane.finish_partly(inbox, due, left=len(far))


def _named(two: TwoBrokers, node: Node, lane: Lane) -> set[int]:
    """The ledgers that the pointer names."""
    pointer = Pointer.parse(two.log(node, lane.topic)["pointer"])
    assert pointer is not None
    return set(pointer.ledgers)


def _wait_restored(two: TwoBrokers, node: Node, lane: Lane) -> None:
    """The index came by its log, without its blocks, and they have come, too: all of them."""
    wait_until(lambda: two.said(node, lane.topic, ALL_HERE), f"daemon {node.name} has all blocks")
    (restored,) = two.said(node, lane.topic, RESTORED)
    (here,) = two.said(node, lane.topic, ALL_HERE)
    assert restored["blocks_to_come"] == here["blocks"] > 0
    assert not here["lost"]
