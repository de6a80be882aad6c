"""Rules of ours, as properties of topics and namespaces: set by the command, followed while messages come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox, Sent, assert_exactly, assert_not_early
from tests.support.lane import MINUTES_10_MS, OURS, Lane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only
LEVEL_MS = 4_000
"""Counted from the broker's read, so never less from the sending on."""


def policy(cluster: Cluster, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """The rules that the command shows."""
    done = run("policy", *arguments, "--json", "--admin-url", cluster.broker.admin_url)
    assert done.returncode == code, (done.stdout, done.stderr)
    return list(json.loads(done.stdout)["rules"]) if code == 0 else []


def late_ms(inbox: Inbox, sent: list[Sent]) -> list[float]:
    inbox.wait_for(sent)
    by_uid = {one.uid: one for one in inbox.arrivals}
    return [-by_uid[one.uid].early_ms for one in sent]


def test_levels_of_a_topic_are_followed_live_and_through_an_unload(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    exact = lane.send_in(1_000)
    assert late_ms(inbox, exact)[0] < LEVEL_MS - 1_000
    shown = policy(cluster, "set", lane.topic, "levels", "4s,1h")
    assert [(one["of"], one["value"]) for one in shown] == [("topic", "4s,1h")]
    assert policy(cluster, "get", lane.topic) == shown

    def rounded() -> bool:
        return late_ms(inbox, lane.send_in(200))[0] >= LEVEL_MS - 200

    wait_until(rounded, "a delay of 200 ms is rounded up to 4 s")
    lane.admin.unload(lane.topic)
    again = lane.send_in(*[500] * 20, None, 7_200_000)
    assert min(late_ms(inbox, again[:20])) >= LEVEL_MS - 500
    lane.wait_delayed(1)
    policy(cluster, "remove", lane.topic, "levels")
    policy(cluster, "remove", lane.topic, "levels", code=1)

    def exact_again() -> bool:
        return late_ms(inbox, lane.send_in(200))[0] < LEVEL_MS - 200

    wait_until(exact_again, "delays are exact again")
    assert_not_early(inbox.arrivals)


def test_a_namespace_s_rules_are_for_its_topics_by_subscription(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    namespace = "public/ruled"
    cluster.admin.create_namespace(namespace)
    policy(cluster, "set", namespace, "levels", "4s", "--subscriptions", "slow-*")
    policy(cluster, "set", namespace, "quota", "5")
    lane, slow, exact = make_lane(namespace), Inbox(), Inbox()
    lane.subscribe(slow, name="slow-one")
    lane.subscribe(exact)
    sent = lane.send_in(*[500] * 5)
    assert min(late_ms(slow, sent)) >= LEVEL_MS - 500
    assert min(late_ms(exact, sent)) < min(late_ms(slow, sent))
    lane.send_in(*[MINUTES_10_MS] * 6)
    wait_until(lambda: lane.metrics(OURS).get("quota_entries") == 5.0, "the quota is shown")
    said = f"{lane.topic}"

    def told() -> bool:
        text = cluster.broker.log_path.read_text(encoding="utf-8", errors="replace")
        return any(
            said in line and "6 delayed messages wait, more than the quota of 5" in line
            for line in text.splitlines()
        )

    wait_until(told, "the broker's log tells of the quota")
    assert_exactly(exact.arrivals, sent)
    assert_not_early([*slow.arrivals, *exact.arrivals])
    shown = policy(cluster, "get", lane.topic)
    assert {(one["of"], one["policy"], one["subscriptions"]) for one in shown} == {
        ("namespace", "levels", "slow-*"),
        ("namespace", "quota", "*"),
    }


def test_a_partitioned_topic_rules_its_partitions(make_lane: Callable[..., Lane], cluster: Cluster) -> None:
    lane, inbox = make_lane(), Inbox()
    lane.admin.create_partitioned(lane.topic, 2)
    policy(cluster, "set", lane.topic, "levels", "4s")
    lane.subscribe(inbox)
    sent = lane.send_in(*[500] * 10)
    assert min(late_ms(inbox, sent)) >= LEVEL_MS - 500


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "orders", "levels", "fast"), "'fast' is not a duration"),
        (("set", "orders", "width", "1s"), "a policy is one of levels, quota, index_log, not width"),
        (("get", "public/no-such-namespace"), "there is no namespace public/no-such-namespace"),
        (
            ("set", "public/default/no-such-topic", "quota", "5"),
            "there is no topic persistent://public/default/",
        ),
        (
            ("get", "topic://a/b/c"),
            "is no topic (persistent://TENANT/NAMESPACE/TOPIC) and no TENANT/NAMESPACE",
        ),
    ],
)
def test_mistakes_are_one_line(cluster: Cluster, arguments: tuple[str, ...], said: str) -> None:
    done = run("policy", *arguments, "--admin-url", cluster.broker.admin_url)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert said in line
