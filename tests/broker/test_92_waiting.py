"""Commands show and cancel waiting messages, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import assert_one_line, run
from tests.support.inbox import Inbox, assert_exactly, keep_all
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.waiting import wait_until

OUTCOMES = ("done", "too_late", "acknowledged", "unknown", "undecided")
pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]


def tell(cluster: Cluster, *arguments: str, code: int = 0) -> Any:
    """The one object that a command prints."""
    done = run(*arguments, "--json", "--socket", str(cluster.daemon.socket_path))
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def listed(cluster: Cluster, lane: Lane, *options: str) -> list[dict[str, Any]]:
    done = run("list", lane.topic, "sub", "--json", *options, "--socket", str(cluster.daemon.socket_path))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def cancel_first(cluster: Cluster, lane: Lane, number: int) -> Any:
    """Cancel the messages that are due first; the answer."""
    chosen = [one["message_id"] for one in listed(cluster, lane)[:number]]
    return tell(cluster, "cancel", lane.topic, "sub", *[part for one in chosen for part in ("--id", one)])


def test_what_waits_is_listed_counted_and_shown(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS + 1_000 * at for at in range(60)])
    lane.wait_delayed(60)
    wait_listed(cluster, lane, 60)
    waiting = listed(cluster, lane)
    assert [one["deliver_at_ms"] for one in waiting] == sorted(one["deliver_at_ms"] for one in waiting)
    assert len(listed(cluster, lane, "--due", "5m..30m")) == 60
    told = tell(cluster, "tide", lane.topic, "sub", "--step", "1m")
    assert told["overdue"] + sum(one["entries"] for one in told["buckets"]) + told["later"] == 60
    assert told["inexact_entries"] == 0
    first = tell(cluster, "show", lane.topic, "sub", waiting[0]["message_id"])
    assert (first["state"], first["deliver_at_ms"]) == ("waiting", waiting[0]["deliver_at_ms"])
    soon = lane.send_in(1_000)
    inbox.wait_for(soon)
    came = "{}:{}".format(*next(one.entry for one in inbox.arrivals if one.uid == soon[0].uid))
    wait_until(
        lambda: tell(cluster, "show", lane.topic, "sub", came)["state"] == "acknowledged",
        "it is acknowledged",
    )
    assert len(listed(cluster, lane)) == 60


def wait_listed(cluster: Cluster, lane: Lane, number: int) -> None:
    wait_until(lambda: len(listed(cluster, lane)) == number, f"{number} are in the index")


def test_cancelled_or_delivered_and_never_both(lane: Lane, cluster: Cluster, tmp_path: Path) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, receiver_queue_size=1)
    sent = lane.send_in(*[30_000] * 200, *[MINUTES_10_MS] * 100)
    lane.wait_delayed(300)
    wait_listed(cluster, lane, 300)
    near, far = listed(cluster, lane)[:200], listed(cluster, lane)[200:]
    ids = tmp_path / "ids"
    ids.write_text("\n".join(one["message_id"] for one in [*near[::2], *far]) + "\n", "utf-8")
    dry = tell(cluster, "cancel", lane.topic, "sub", "--ids", str(ids), "--dry-run")
    assert (dry["done"], dry["dry_run"]) == (200, True)
    told = tell(cluster, "cancel", lane.topic, "sub", "--ids", str(ids))
    assert {name: told[name] for name in OUTCOMES} == dict.fromkeys(OUTCOMES, 0) | {"done": 200}
    assert tell(cluster, "show", lane.topic, "sub", far[0]["message_id"])["state"] == "acknowledged"
    again = tell(cluster, "cancel", lane.topic, "sub", "--ids", str(ids), code=1)
    assert (again["done"], again["acknowledged"]) == (0, 200)
    delivered = sent[1:200:2]
    inbox.wait_for(delivered)
    lane.wait_stats(lambda now: now.backlog == 0, "what was cancelled is no backlog")
    assert_exactly(inbox.arrivals, delivered)


def test_what_was_cancelled_survives_kill_9_of_both(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    kept = lane.send_in(*[25_000] * 50)
    lane.send_in(*[24_000] * 50)
    lane.wait_delayed(100)
    wait_listed(cluster, lane, 100)
    told = cancel_first(cluster, lane, 50)
    assert told["done"] == 50
    cluster.broker.kill()
    cluster.daemon.kill()
    lane.disconnect()
    cluster.daemon.start()
    cluster.start_broker()
    lane.subscribe(inbox)
    inbox.wait_for(kept)
    lane.wait_stats(lambda now: now.backlog == 0, "what was cancelled is acknowledged")
    assert_exactly(inbox.arrivals, kept)


def test_what_was_cancelled_stays_so_for_a_broker_that_decides_alone(lane: Lane, cluster: Cluster) -> None:
    """Killed right after the answer, and no daemon answers the next broker until it waits no longer."""
    inbox = Inbox()
    lane.subscribe(inbox)
    kept = lane.send_in(*[30_000] * 20)
    lane.send_in(*[28_000] * 20)
    lane.wait_delayed(40)
    wait_listed(cluster, lane, 40)
    told = cancel_first(cluster, lane, 20)
    cluster.broker.kill()
    cluster.daemon.kill()
    assert told["done"] == 20
    lane.disconnect()
    cluster.start_broker()
    lane.subscribe(inbox)
    inbox.wait_for(kept)
    assert_exactly(inbox.arrivals, kept)
    cluster.daemon.start()
    lane.wait_stats(lambda now: now.backlog == 0, "what was cancelled is acknowledged")
    assert_exactly(inbox.arrivals, kept)


def test_it_needs_no_consumer(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    consumer = lane.subscribe(inbox)
    kept = lane.send_in(*[20_000] * 2)
    lane.send_in(*[18_000] * 3)
    lane.wait_delayed(5)
    wait_listed(cluster, lane, 5)
    consumer.close()
    told = cancel_first(cluster, lane, 3)
    assert told["done"] == 3
    lane.wait_stats(lambda now: now.backlog == 2, "what was cancelled is no backlog")
    lane.subscribe(inbox)
    inbox.wait_for(kept)
    assert_exactly(inbox.arrivals, kept)


def test_each_id_gets_one_answer(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, keep_all)
    held = lane.send_in(500)
    inbox.wait_for(held)
    lane.send_in(*[MINUTES_10_MS] * 20)
    lane.wait_delayed(20)
    wait_listed(cluster, lane, 21)
    waiting = [one["message_id"] for one in listed(cluster, lane)]
    options = [part for one in (*waiting[:2], "999999999:1") for part in ("--id", one)]
    told = tell(cluster, "cancel", lane.topic, "sub", *options, code=1)
    assert {name: told[name] for name in OUTCOMES} == {
        "done": 1,
        "too_late": 1,
        "acknowledged": 0,
        "unknown": 1,
        "undecided": 0,
    }
    assert told["ids"] == {"too_late": [waiting[0]], "unknown": ["999999999:1"]}
    assert tell(cluster, "show", lane.topic, "sub", waiting[0])["state"] == "handed_out"
    every = tell(cluster, "cancel", lane.topic, "sub", "--due", "1m..")
    assert every["done"] == 19
    lane.wait_stats(lambda now: now.backlog == 1, "only what the consumer has is left")
    bad = run(
        "cancel", lane.topic, "sub", "--id", "17", "--socket", str(cluster.daemon.socket_path), "--json"
    )
    assert_one_line(bad, "write ledger:entry", 1)
