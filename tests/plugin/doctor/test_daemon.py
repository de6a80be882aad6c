"""The daemon's status: bypasses, readiness, versions, damage, index logs, lateness."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tidegate.plugin.doctor.daemon import EACH_MAX, daemon_findings, far_findings
from tidegate.plugin.doctor.finding import Finding, Verdict, worst_first

ONE: dict[str, Any] = {
    "topic": "persistent://public/default/orders",
    "subscription": "billing",
    "broker": "broker-1",
    "credit": 5,
    "pace": {"paused": False, "rate": None, "spread_ms": None},
    "overdue_ms": 0,
    "index_log": None,
}
LOG = {"lag_seconds": 0.1, "waiting_bytes": 3, "failure": ""}
STATUS: dict[str, Any] = {
    "daemon": {"product": "tidegate 0.1.0", "ready": True, "not_ready": [], "uptime_seconds": 60.0},
    "brokers": [{"name": "broker-1", "product": "pulsar 4.0.8"}],
    "bypassed": {"dispatchers": 0, "named": []},
    "totals": {"lost_commits": 0, "corrupt_records": 0, "blocks_quarantined": 0, "damaged_bytes": 0},
    "subscriptions": [ONE],
}


def status(**changes: Any) -> dict[str, Any]:
    return deepcopy(STATUS) | changes


def of(answer: dict[str, Any]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in daemon_findings(answer, "0.1.0"):
        found.setdefault(one.check, []).append(one)
    return found


def only(answer: dict[str, Any], check: str) -> Finding:
    (found,) = of(answer)[check]
    return found


def test_all_is_well() -> None:
    found = of(STATUS)
    assert {one.verdict for each in found.values() for one in each} == {Verdict.OK}
    assert found.keys() == {"tracker", "ready", "version", "brokers", "damage", "overdue"}


def test_each_bypassed_dispatcher_is_a_fault_and_the_loudest() -> None:
    named = [{"broker": "b", "topic": "t", "subscription": "s", "delayed": 20, "reason": "another factory"}]
    answer = status(bypassed={"dispatchers": 3, "named": named})
    answer["daemon"] |= {"ready": False, "not_ready": ["BYPASSED: 3 dispatchers", "the disk is full"]}
    first, more, disk, *_ = worst_first(daemon_findings(answer, "0.1.0"))
    assert (first.verdict, first.topic, first.subscription) == (Verdict.FAULT, "t", "s")
    assert first.says == "BYPASSED: Tidegate does not have its 20 delayed messages: another factory"
    assert more.says == "BYPASSED: 2 dispatchers more"
    assert (disk.check, disk.says) == ("ready", "the disk is full")


def test_nobody_connected_says_nothing_of_trackers() -> None:
    answer = status(brokers=[])
    assert only(answer, "brokers").verdict is Verdict.FAULT
    assert "tracker" not in of(answer)


def test_another_version_is_a_warning() -> None:
    answer = status()
    answer["daemon"]["product"] = "tidegate 0.2.0"
    found = only(answer, "version")
    assert (found.verdict, found.says) == (
        Verdict.WARNING,
        "the daemon is tidegate 0.2.0, this command 0.1.0",
    )


@pytest.mark.parametrize("name", ["lost_commits", "corrupt_records", "blocks_quarantined", "damaged_bytes"])
def test_damage_is_a_warning(name: str) -> None:
    found = only(status(totals=STATUS["totals"] | {name: 2}), "damage")
    assert found.verdict is Verdict.WARNING
    assert found.says.startswith("2 ")


def test_a_store_that_compacts_nothing_is_a_warning() -> None:
    answer = status(totals=STATUS["totals"] | {"store_compactions_disabled": True})
    assert "compacts nothing" in only(answer, "damage").says


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        ({}, Verdict.OK),
        ({"failure": "no bookie"}, Verdict.WARNING),
        ({"lag_seconds": 60.0}, Verdict.FAULT),
        ({"lag_seconds": 90.0, "failure": "no bookie"}, Verdict.FAULT),
    ],
)
def test_an_index_log_behind(log: dict[str, Any], verdict: Verdict) -> None:
    found = only(status(subscriptions=[ONE | {"index_log": LOG | log}]), "index-log")
    assert found.verdict is verdict
    assert log.get("failure", "") in found.says


@pytest.mark.parametrize(
    ("changes", "verdict", "do"),
    [
        ({"overdue_ms": 4_999}, Verdict.OK, ""),
        ({"overdue_ms": 5_000}, Verdict.WARNING, "messages come late"),
        ({"overdue_ms": 5_000, "credit": 0}, Verdict.WARNING, "consumers do not keep up"),
        ({"overdue_ms": 5_000, "pace": {"paused": True}}, Verdict.NOTE, "tidegate resume"),
        ({"overdue_ms": 5_000, "broker": None, "pace": None, "credit": None}, Verdict.OK, ""),
    ],
)
def test_overdue(changes: dict[str, Any], verdict: Verdict, do: str) -> None:
    found = only(status(subscriptions=[ONE | changes]), "overdue")
    assert found.verdict is verdict
    assert do in found.do


def test_many_are_counted() -> None:
    many = [ONE | {"topic": f"t-{number}", "overdue_ms": 9_000} for number in range(EACH_MAX + 90)]
    found = of(status(subscriptions=many))["overdue"]
    assert len(found) == EACH_MAX + 1
    assert found[-1].says == "and 90 more like these"


def test_messages_due_in_another_age_are_a_warning() -> None:
    assert far_findings({"later": 0, "inexact_entries": 0}) == []
    (found,) = far_findings({"later": 5, "inexact_entries": 0})
    assert (found.verdict, found.says) == (Verdict.WARNING, "5 messages are due in more than 10 years")


def test_a_count_that_may_be_wrong_is_no_finding() -> None:
    """An inexact tide counts messages that are acknowledged, or due in a bucket nearby."""
    assert far_findings({"later": 5, "inexact_entries": 5}) == []
    (found,) = far_findings({"later": 5, "inexact_entries": 3})
    assert found.says.startswith("2 messages")
