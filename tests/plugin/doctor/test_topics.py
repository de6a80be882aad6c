"""Topics: TTL, quotas, expiry, ranges of acknowledgements, consumers, units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.plugin.doctor.finding import Finding, Verdict
from tidegate.plugin.doctor.topics import (
    EVICTION,
    Quota,
    Sample,
    SubscriptionFacts,
    TopicFacts,
    Waiting,
    passed,
    topic_findings,
)

NOW = 1_800_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BILLING = SubscriptionFacts("billing", 1, 10, 5, NOW)
FACTS = TopicFacts(
    name="persistent://public/default/orders",
    now_ms=NOW,
    storage_bytes=1_000,
    subscriptions=(BILLING,),
    ttl_ms=0,
    age=Quota(0, ""),
    space=Quota(-1, ""),
    expiry_ms=0,
    waiting=Waiting(10, HOUR_MS),
    sample=Sample(NOW - 1_000, NOW + HOUR_MS),
    ack_ranges_max=10_000,
)


def of(**changes: Any) -> list[Finding]:
    return topic_findings(replace(FACTS, **changes))


def verdicts(**changes: Any) -> list[tuple[str, Verdict]]:
    return [(one.check, one.verdict) for one in of(**changes)]


def test_all_is_well() -> None:
    assert of() == []
    assert {one.verdict for one in passed([FACTS], ())} == {Verdict.OK}
    assert len(passed([FACTS], ())) == 5
    assert len(passed([replace(FACTS, kept={"billing": (1, 10)})], ())) == 6


@pytest.mark.parametrize(
    ("held", "quota", "verdict"),
    [
        (7, 10, None),
        (8, 10, Verdict.NOTE),
        (10, 10, Verdict.NOTE),
        (11, 10, Verdict.WARNING),
        (11, None, None),
    ],
)
def test_the_quota_of_waiting_messages(held: int, quota: int | None, verdict: Verdict | None) -> None:
    found = of(kept={"billing": (held, quota), "other": (5, None)})
    assert [(one.check, one.verdict, one.subscription) for one in found] == (
        [] if verdict is None else [("delay-quota", verdict, "billing")]
    )


def test_a_check_that_could_not_judge_is_not_passed() -> None:
    unknown = replace(
        FACTS,
        ttl_ms=None,
        age=None,
        space=None,
        expiry_ms=None,
        subscriptions=None,
        ack_ranges_max=0,
        sample=None,
    )
    assert topic_findings(unknown) == []
    assert passed([unknown], ()) == []
    ttl, *_ = passed([FACTS, unknown], ())
    assert ttl.says.endswith("(1 of 2 topics)")
    assert "ttl" not in {one.check for one in passed([FACTS], {"ttl"})}


def test_messages_due_beyond_the_ttl_are_a_fault() -> None:
    (found,) = of(ttl_ms=60_000, waiting=Waiting(10, HOUR_MS, {60_000: 7}))
    assert (found.check, found.verdict, found.topic) == ("ttl", Verdict.FAULT, FACTS.name)
    assert found.says.startswith("7 messages are due only after the TTL of 1 min")


@pytest.mark.parametrize(
    ("ttl_ms", "waiting", "expected"),
    [
        (HOUR_MS + 1, Waiting(10, HOUR_MS), [("ttl", Verdict.NOTE)]),
        (2 * HOUR_MS, Waiting(10, HOUR_MS), []),
        (60_000, Waiting(0, 0), []),
    ],
)
def test_a_ttl_that_nothing_waits_beyond(ttl_ms: int, waiting: Waiting, expected: list[Any]) -> None:
    assert verdicts(ttl_ms=ttl_ms, waiting=waiting) == expected


@pytest.mark.parametrize(
    ("policy", "verdict"), [(EVICTION, Verdict.FAULT), ("producer_exception", Verdict.WARNING)]
)
def test_a_quota_of_age(policy: str, verdict: Verdict) -> None:
    age = Quota(60_000, policy)
    assert verdicts(age=age, waiting=Waiting(10, HOUR_MS, {60_000: 1})) == [("quota", verdict)]
    assert verdicts(age=age, waiting=Waiting(10, HOUR_MS, {60_000: 0})) == []


@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [
        (EVICTION, 1_250, [("quota", Verdict.FAULT)]),
        (EVICTION, 1_251, []),
        ("producer_request_hold", 1_000, [("quota", Verdict.WARNING)]),
        (EVICTION, -1, []),
    ],
)
def test_a_quota_of_space(policy: str, limit: int, expected: list[Any]) -> None:
    assert verdicts(space=Quota(limit, policy)) == expected


def test_a_subscription_that_expires_before_its_messages_are_due() -> None:
    changes = {"expiry_ms": 60_000, "waiting": Waiting(10, HOUR_MS, {60_000: 1})}
    assert verdicts(**changes) == []
    absent = (replace(BILLING, consumers=0),)
    assert ("expiry", Verdict.WARNING) in verdicts(**changes, subscriptions=absent)


@pytest.mark.parametrize(("ranges", "warned"), [(7_999, False), (8_000, True), (20_000, True)])
def test_ranges_near_the_limit(ranges: int, warned: bool) -> None:
    found = of(subscriptions=(replace(BILLING, ack_ranges=ranges),))
    assert [(one.check, one.subscription) for one in found] == ([("ack-ranges", "billing")] if warned else [])


@pytest.mark.parametrize(
    ("last_ms", "verdict", "said"),
    [
        (NOW - HOUR_MS, Verdict.NOTE, "no consumer for 1 h"),
        (NOW - DAY_MS, Verdict.WARNING, "no consumer for 1 d"),
        (0, Verdict.WARNING, "never had a consumer"),
    ],
)
def test_a_subscription_that_nobody_consumes(last_ms: int, verdict: Verdict, said: str) -> None:
    (found,) = of(subscriptions=(replace(BILLING, consumers=0, last_ms=last_ms),))
    assert (found.check, found.verdict, found.subscription) == ("unconsumed", verdict, "billing")
    assert said in found.says


def test_an_empty_subscription_without_consumers_is_well() -> None:
    assert of(subscriptions=(replace(BILLING, consumers=0, backlog=0),)) == []


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (Sample(NOW, NOW // 1_000), [("delays", Verdict.WARNING)]),
        (Sample(NOW, NOW + 60), [("delays", Verdict.NOTE)]),
        (Sample(NOW, NOW + 1_000), []),
        (Sample(NOW, None), []),
        (Sample(None, None), []),
        (Sample(NOW + 2_001, None), [("clocks", Verdict.WARNING)]),
    ],
)
def test_the_newest_message(sample: Sample, expected: list[Any]) -> None:
    assert verdicts(sample=sample) == expected
