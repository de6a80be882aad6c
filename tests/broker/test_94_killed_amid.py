"""Broker, daemon or both are killed amid changes: asked again, each message has one outcome, and it holds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_92_waiting import listed, wait_listed
from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Lane, now_ms
from tests.support.waiting import wait_until
from tidegate.plugin.client.client import Client
from tidegate.plugin.errors import TidegateError

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]
EACH = 150
BATCH = 5
HOUR_MS = 3_600_000
PATIENCE_S = 300.0


class Changing:
    """A thread that changes messages in small batches, until one fails."""

    def __init__(self, cluster: Cluster, lane: Lane, ids: list[str], what: str, **how: int) -> None:
        self._client = Client(socket=cluster.daemon.socket_path, timeout_s=30)
        self._make: Callable[..., Any] = getattr(self._client, what)
        self._batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
        self._lane, self._how = lane, how
        self.done = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._client:
                for batch in self._batches:
                    told = self._make(self._lane.topic, "sub", ids=batch, **self._how)
                    self.done += told.done
                    if told.undecided:
                        return
        except TidegateError:
            pass


def asked_again(cluster: Cluster, lane: Lane, folder: Path, ids: list[str], *command: str) -> dict[str, Any]:
    """The counts of a command that is asked until nothing is undecided. Its exit code agrees with them."""
    file = folder / command[0]
    file.write_text("\n".join(ids) + "\n", "utf-8")
    found: dict[str, Any] = {}

    def decided() -> bool:
        arguments = (command[0], lane.topic, "sub", "--ids", str(file), *command[1:], "--json")
        answer = run(*arguments, "--socket", str(cluster.daemon.socket_path))
        if not answer.stdout:
            assert answer.returncode in {1, 3}, answer
            assert answer.stderr.count("\n") == 1, answer.stderr
            return False
        found.update(json.loads(answer.stdout))
        assert answer.returncode == (0 if found["done"] == len(ids) else 1), answer
        return not found["undecided"]

    wait_until(decided, f"{command[0]} is decided", timeout_s=PATIENCE_S)
    return found


@pytest.mark.parametrize("victims", [("broker",), ("daemon",), ("broker", "daemon")], ids="+".join)
def test_killed_amid_changes(lane: Lane, cluster: Cluster, tmp_path: Path, victims: tuple[str, ...]) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[MINUTES_10_MS] * (3 * EACH + 10))
    wait_listed(cluster, lane, len(sent))
    ids = [one["message_id"] for one in listed(cluster, lane)]
    cancelled, moved, released = (slice(at, at + EACH) for at in (0, EACH, 2 * EACH))
    at_ms = now_ms() + HOUR_MS
    changing = [
        Changing(cluster, lane, ids[cancelled], "cancel"),
        Changing(cluster, lane, ids[moved], "reschedule", at_ms=at_ms),
        Changing(cluster, lane, ids[released], "release"),
    ]
    wait_until(lambda: all(one.done >= EACH // 6 for one in changing), "some are changed")
    for victim in victims:
        getattr(cluster, victim).kill()
    lane.disconnect()
    if "daemon" in victims:
        cluster.daemon.start()
    if "broker" in victims:
        cluster.start_broker()
    for one in changing:
        one.thread.join(timeout=120)
        assert not one.thread.is_alive()
    lane.subscribe(inbox)
    told = asked_again(cluster, lane, tmp_path, ids[cancelled], "cancel")
    assert told["done"] + told["acknowledged"] == EACH, told
    assert told["acknowledged"] >= changing[0].done, "what was answered as done is done"
    told = asked_again(cluster, lane, tmp_path, ids[released], "release")
    assert told["unknown"] == 0, told
    told = asked_again(cluster, lane, tmp_path, ids[moved], "reschedule", "--at", str(at_ms))
    assert told["done"] == EACH, told
    inbox.wait_for(sent[released], timeout_s=PATIENCE_S)
    wait_listed(cluster, lane, EACH + 10)
    assert {one["message_id"]: one["deliver_at_ms"] for one in listed(cluster, lane)[10:]} == dict.fromkeys(
        ids[moved], at_ms
    )
    uids = {one.uid: number for number, one in enumerate(sent)}
    came = {uids[one.uid] for one in inbox.arrivals}
    assert came == set(range(2 * EACH, 3 * EACH)), "the released ones, no cancelled or moved one"
    asked_again(cluster, lane, tmp_path, ids[moved], "release")
    inbox.wait_for(sent[moved], timeout_s=PATIENCE_S)
    came = {uids[one.uid] for one in inbox.arrivals}
    assert came == set(range(EACH, 3 * EACH)), "no cancelled one, and none that waits"
    lane.wait_stats(lambda now: now.backlog == 10, "ten are left")
