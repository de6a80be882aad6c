"""Messages are rescheduled and released on a real broker: due at their new times, whatever is killed."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from tests.broker.test_92_waiting import OUTCOMES, listed, tell, wait_listed
from tests.support.cluster import Cluster
from tests.support.daemons import assert_one_line, run
from tests.support.inbox import Arrival, Inbox, Sent, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane, now_ms
from tidegate.index import PositionSet
from tidegate.plugin.wire.client import ask_socket

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]
LATER_MS = 150_000  # commands take long on a busy machine
PATIENCE_S = 240.0


def change(cluster: Cluster, lane: Lane, command: str, ids: Sequence[str], *options: str) -> Any:
    """Reschedule or release these; all must be done."""
    chosen = [part for one in ids for part in ("--id", one)]
    told = tell(cluster, command, lane.topic, "sub", *chosen, *options)
    assert {name: told[name] for name in OUTCOMES} == dict.fromkeys(OUTCOMES, 0) | {"done": len(ids)}
    return told


def ids_of(cluster: Cluster, lane: Lane) -> list[str]:
    return [one["message_id"] for one in listed(cluster, lane)]


def came(inbox: Inbox, sent: Sequence[Sent]) -> list[Arrival]:
    """The arrivals of these messages, each of which must have come once."""
    uids = {one.uid for one in sent}
    arrivals = [one for one in inbox.arrivals if one.uid in uids]
    assert sorted(one.uid for one in arrivals) == sorted(uids), "each comes, and once"
    return arrivals


def assert_not_before(arrivals: Sequence[Arrival], time_ms: int) -> None:
    early = [one.told for one in arrivals if one.received_ns / 1e6 < time_ms]
    assert early == []


def test_later_earlier_and_at_once(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    near = lane.send_in(*[90_000] * 10)
    far = lane.send_in(*[MINUTES_10_MS + 1_000 * at for at in range(20)])
    lane.wait_delayed(30)
    wait_listed(cluster, lane, 30)
    ids = ids_of(cluster, lane)
    at_ms = now_ms() + LATER_MS
    change(cluster, lane, "reschedule", ids[:10], "--at", str(at_ms))
    change(cluster, lane, "release", ids[10:20])
    inbox.wait_for(far[:10], timeout_s=PATIENCE_S)
    assert now_ms() < at_ms, "the released ones come at once"
    change(cluster, lane, "reschedule", ids[20:], "--at", str(at_ms))
    assert {one["deliver_at_ms"] for one in listed(cluster, lane)} == {at_ms}
    inbox.wait_for([*near, *far], timeout_s=PATIENCE_S)
    assert_not_before(came(inbox, [*near, *far[10:]]), at_ms)
    lane.wait_stats(lambda now: now.backlog == 0, "everything is acknowledged")


@pytest.mark.parametrize("alone", [False, True], ids=["both start again", "the broker alone does"])
def test_the_new_times_survive_kill_9_of_both(lane: Lane, cluster: Cluster, *, alone: bool) -> None:
    """Killed right after the answer; alone, the next broker decides without a daemon."""
    inbox = Inbox()
    lane.subscribe(inbox)
    later = lane.send_in(*[90_000] * 20)
    released = lane.send_in(*[MINUTES_10_MS] * 20)
    lane.wait_delayed(40)
    wait_listed(cluster, lane, 40)
    ids = ids_of(cluster, lane)
    at_ms = now_ms() + LATER_MS
    change(cluster, lane, "reschedule", ids[:20], "--at", str(at_ms))
    soon_ms = now_ms() + 60_000
    change(cluster, lane, "reschedule", ids[20:], "--at", str(soon_ms))
    cluster.broker.kill()
    cluster.daemon.kill()
    lane.disconnect()
    if not alone:
        cluster.daemon.start()
    cluster.start_broker()
    lane.subscribe(inbox)
    inbox.wait_for([*later, *released], timeout_s=PATIENCE_S)
    assert_not_before(came(inbox, later), at_ms)
    assert_not_before(came(inbox, released), soon_ms)
    if alone:
        cluster.daemon.start()
    lane.wait_stats(lambda now: now.backlog == 0, "everything is acknowledged")


def test_a_chunk_alone_is_refused_and_holds_nothing_up(lane: Lane, cluster: Cluster) -> None:
    """Pulsar gives it to nobody, and reads nothing else, before it has met the first chunk."""
    inbox = Inbox()
    lane.subscribe(inbox)
    producer = lane.producer(chunking_enabled=True)
    lane.send_in(MINUTES_10_MS, producer=producer, payload=bytes(6 * 1024 * 1024))
    wait_listed(cluster, lane, 2)
    first, second = ids_of(cluster, lane)
    at = ("--socket", str(cluster.daemon.socket_path))
    refused = run("release", lane.topic, "sub", "--id", second, *at)
    assert_one_line(refused, f"{second} is chunk 2 of 2 of a message", 1)
    assert ids_of(cluster, lane) == [first, second]
    ledger_id, entry_id = map(int, second.split(":"))
    position = base64.b64encode(PositionSet.of([(ledger_id, entry_id)]).serialize()).decode("ascii")
    request = {"what": "release", "topic": lane.topic, "subscription": "sub", "positions": position}
    assert ask_socket(cluster.daemon.socket_path, request)["done"] == 1  # as of more ids than are checked
    plain = lane.send_in(*[None] * 10)
    inbox.wait_for(plain)
    assert_exactly(inbox.arrivals, plain)


def test_the_first_chunk_cancelled_alone_takes_the_others_with_it(lane: Lane, cluster: Cluster) -> None:
    """Once they are due: Pulsar's dispatcher would give them to nobody, and read nothing else."""
    inbox = Inbox()
    lane.subscribe(inbox)
    producer = lane.producer(chunking_enabled=True)
    lane.send_in(MINUTES_10_MS, producer=producer, payload=bytes(11 * 1024 * 1024))
    wait_listed(cluster, lane, 3)
    ids = ids_of(cluster, lane)
    assert tell(cluster, "cancel", lane.topic, "sub", "--id", ids[0])["done"] == 1
    position = base64.b64encode(PositionSet.of([_position(one) for one in ids[1:]]).serialize()).decode()
    request = {"what": "release", "topic": lane.topic, "subscription": "sub", "positions": position}
    assert ask_socket(cluster.daemon.socket_path, request)["done"] == 2  # as if their time had come
    plain = lane.send_in(*[None] * 10)
    inbox.wait_for(plain)
    lane.wait_stats(lambda now: now.backlog == 0, "nothing is left of the message")
    assert_exactly(inbox.arrivals, plain)
    every = [part for one in ids for part in ("--id", one)]
    told = tell(cluster, "cancel", lane.topic, "sub", *every, code=1)
    assert told["acknowledged"] == 3


def _position(message_id: str) -> tuple[int, int]:
    ledger_id, entry_id = map(int, message_id.split(":"))
    return ledger_id, entry_id


def test_a_chunked_message_is_released_with_all_its_chunks(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    producer = lane.producer(chunking_enabled=True)
    sent = lane.send_in(MINUTES_10_MS, producer=producer, payload=bytes(6 * 1024 * 1024))
    wait_listed(cluster, lane, 2)
    change(cluster, lane, "release", ids_of(cluster, lane))
    inbox.wait_for(sent)


def test_the_new_times_survive_an_unload(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    later = lane.send_in(*[90_000] * 20)
    lane.wait_delayed(20)
    wait_listed(cluster, lane, 20)
    at_ms = now_ms() + LATER_MS
    change(cluster, lane, "reschedule", ids_of(cluster, lane), "--at", str(at_ms))
    lane.admin.unload(lane.topic)
    inbox.wait_for(later, timeout_s=PATIENCE_S)
    assert_not_before(came(inbox, later), at_ms)
    lane.wait_stats(lambda now: now.backlog == 0, "everything is acknowledged")
