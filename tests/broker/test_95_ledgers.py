"""``tidegate ledgers``: Pulsar keeps the ledgers that it names, until nothing waits in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import assert_one_line
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only
ROUNDS, CONSUMED = 3, 30


def ask(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["--admin-url", cluster.broker.admin_url, "--socket", str(cluster.daemon.socket_path)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    command = [sys.executable, "-m", "tidegate.plugin.cli", *arguments]
    return subprocess.run([*command, *where], capture_output=True, text=True, check=False, env=clean)


def ledgers(cluster: Cluster, lane: Lane) -> dict[str, Any]:
    done = ask(cluster, "ledgers", f"persistent://{lane.topic}", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["topics"][0]
    return found


def test_the_ledgers_that_a_few_far_messages_keep_go_with_them(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    for _ in range(ROUNDS):  # a topic that is loaded anew begins a ledger
        lane.send_in(MINUTES_10_MS)
        inbox.wait_for(lane.send_in(*[None] * CONSUMED))
        lane.admin.unload(lane.topic)
    wait_until(lambda: cluster.held(lane.topic).get("sub") == ROUNDS, "they are held")

    def settled() -> bool:
        return all(one["other"] == 0 for one in ledgers(cluster, lane)["ledgers"][:ROUNDS])

    wait_until(settled, "the acknowledgements are known")
    found = ledgers(cluster, lane)
    kept = [(one["entries"], one["waiting"], one["subscriptions"]) for one in found["ledgers"][:ROUNDS]]
    assert kept == [(CONSUMED + 1, 1, ["sub"])] * ROUNDS
    assert all(one["size_bytes"] > 0 for one in found["ledgers"][:ROUNDS])
    saved = found["saving"]
    assert (saved["ledgers"], saved["waiting"]) == (ROUNDS, ROUNDS)
    lane.admin.trim(lane.topic)
    still = [one["ledger_id"] for one in ledgers(cluster, lane)["ledgers"]]
    assert still == [one["ledger_id"] for one in found["ledgers"]], "Pulsar keeps them"
    text = ask(cluster, "ledgers", lane.topic).stdout
    assert f"all ledgers from {still[0]} on are kept for sub" in text
    assert f"of them, the first {ROUNDS} (" in text

    socket = ["--socket", str(cluster.daemon.socket_path)]
    command = [
        sys.executable,
        "-m",
        "tidegate.plugin.cli",
        "cancel",
        f"persistent://{lane.topic}",
        "sub",
        "--all",
    ]
    subprocess.run([*command, *socket], check=True, capture_output=True)

    def gone() -> bool:
        lane.admin.trim(lane.topic)
        left = {one["ledgerId"] for one in lane.admin.internal_stats(lane.topic)["ledgers"]}
        return not left & set(still[:ROUNDS])

    wait_until(gone, "Pulsar deletes them when nothing waits in them")
    assert ledgers(cluster, lane)["saving"]["ledgers"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ledgers", "no-such-topic"], "no-such-topic"),
        (["ledgers", "a/b"], "is no topic"),
        (["ledgers", "orders", "--share", "7"], "--share"),
    ],
)
def test_bad_input_is_one_line(cluster: Cluster, arguments: list[str], says: str) -> None:
    done = ask(cluster, *arguments)
    assert_one_line(done, says, 2)
