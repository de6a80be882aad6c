"""Checks of topics: messages that Pulsar may delete before they are due, and ledgers kept. Pure.

Pulsar counts a TTL from publication, and deletes everything older, delayed or not. A limit shorter than the
remaining wait is surely too short, because the whole delay is longer still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.plugin.doctor.finding import Finding, Verdict
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import in_words

EVICTION = "consumer_backlog_eviction"
_NEAR = 0.8
_DAY_MS = 86_400_000
_EPOCH_S_MS = 100_000_000_000
"""A deliver_at below it (March 1973) is no time in milliseconds, but one in seconds."""
_SHORT_MS = 1_000
_PUBLISHED_AHEAD_MS = 2_000


@dataclass(frozen=True)
class SubscriptionFacts:
    """A subscription, from the topic's stats. last_ms: a consumer took or asked last, 0 for never."""

    name: str
    consumers: int
    backlog: int
    ack_ranges: int
    last_ms: int


@dataclass(frozen=True)
class Quota:
    """A backlog quota: limit in bytes or seconds, 0 or less for none; Pulsar's name of the policy."""

    limit: int
    policy: str


@dataclass(frozen=True)
class Waiting:
    """The messages that wait in all indexes of the topic.

    longest_ms: the last is due after at least so long. beyond: by limit in ms, the number that surely waits
    longer.
    """

    entries: int
    longest_ms: int
    beyond: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """The newest message: times of publication and delivery, None where it has none."""

    publish_ms: int | None
    deliver_at_ms: int | None


@dataclass(frozen=True)
class TopicFacts:
    """A topic; None for anything that the broker did not tell.

    ttl_ms, age, space, expiry_ms: the TTL, both backlog quotas (age: limit in ms) and the time after which a
    subscription without consumers goes; 0 for none. ack_ranges_max: of the broker, 0 if unknown. kept: by
    subscription the waiting messages, and the quota of `tidegate policy`, None for none.
    """

    name: str
    now_ms: int
    storage_bytes: int
    subscriptions: tuple[SubscriptionFacts, ...] | None
    ttl_ms: int | None
    age: Quota | None
    space: Quota | None
    expiry_ms: int | None
    waiting: Waiting
    sample: Sample | None
    ack_ranges_max: int
    kept: Mapping[str, tuple[int, int | None]] | None = None


def limits_of(ttl_ms: int | None, age: Quota | None, expiry_ms: int | None) -> set[int]:
    """The limits in ms that a wait may exceed."""
    limits = (ttl_ms, None if age is None else age.limit, expiry_ms)
    return {one for one in limits if one is not None and one > 0}


def topic_findings(facts: TopicFacts) -> list[Finding]:
    """The findings about one topic; none for a check that finds nothing."""
    return [
        *_ttl(facts),
        *_age(facts),
        *_space(facts),
        *_expiry(facts),
        *_acks(facts),
        *_unconsumed(facts),
        *_units(facts),
        *_delay_quota(facts),
    ]


_PASSED: Mapping[str, tuple[Callable[[TopicFacts], bool], str]] = {
    "ttl": (lambda one: one.ttl_ms is not None, "no message is due beyond its topic's TTL"),
    "quota": (lambda one: one.age is not None, "no backlog quota is near, and none is shorter than a wait"),
    "expiry": (lambda one: one.expiry_ms is not None, "no subscription expires while its messages wait"),
    "ack-ranges": (lambda one: one.ack_ranges_max > 0, "no cursor is near its limit of acknowledgements"),
    "delay-quota": (
        lambda one: any(quota for _, quota in (one.kept or {}).values()),
        "no more messages wait than the quotas of tidegate policy say",
    ),
    "unconsumed": (
        lambda one: one.subscriptions is not None,
        "each subscription with a backlog has consumers",
    ),
}
"""By check: the topics that it can judge, and its good verdict."""


def passed(facts: Sequence[TopicFacts], found: Collection[str]) -> list[Finding]:
    """The good verdict of each check that is not in ``found`` and could judge topics."""
    findings = []
    for check, (judges, says) in _PASSED.items():
        judged = sum(map(judges, facts))
        if check in found or not judged:
            continue
        of = counted(len(facts), "topic")
        if judged < len(facts):
            of = f"{judged:,} of {of}"
        findings.append(Finding(check=check, verdict=Verdict.OK, says=f"{says} ({of})"))
    return findings


def _of(facts: TopicFacts, check: str, verdict: Verdict, says: str, do: str) -> Finding:
    return Finding(check=check, verdict=verdict, says=says, do=do, topic=facts.name)


def _ttl(facts: TopicFacts) -> list[Finding]:
    ttl_ms, waiting = facts.ttl_ms, facts.waiting
    if not ttl_ms or not waiting.entries:
        return []
    ttl = in_words(ttl_ms)
    do = "set a TTL longer than the longest delay, or none: pulsar-admin topics set-message-ttl"
    if beyond := waiting.beyond.get(ttl_ms, 0):
        says = f"{counted(beyond, 'message', 'are')} due only after the TTL of {ttl}: "
        says += "Pulsar counts it from publication, and deletes them undelivered"
        return [_of(facts, "ttl", Verdict.FAULT, says, do)]
    if waiting.longest_ms * 2 > ttl_ms:
        says = f"the TTL is {ttl}, and a message still waits for {in_words(waiting.longest_ms)}: a delay "
        says += "longer than the TTL, counted from publication, ends undelivered"
        return [_of(facts, "ttl", Verdict.NOTE, says, do)]
    return []


def _age(facts: TopicFacts) -> list[Finding]:
    age = facts.age
    if age is None or age.limit <= 0:
        return []
    beyond = facts.waiting.beyond.get(age.limit, 0)
    if not beyond:
        return []
    do = "raise the backlog quota of type message_age above the longest delay, or remove it"
    limit = in_words(age.limit)
    says = f"{counted(beyond, 'message', 'are')} due only after the backlog quota's {limit}"
    if age.policy == EVICTION:
        return [_of(facts, "quota", Verdict.FAULT, f"{says}, and {EVICTION} deletes them", do)]
    return [_of(facts, "quota", Verdict.WARNING, f"{says}: {age.policy} stops producers", do)]


def _space(facts: TopicFacts) -> list[Finding]:
    space = facts.space
    if space is None or space.limit <= 0 or not facts.waiting.entries:
        return []
    share = facts.storage_bytes / space.limit
    if share < _NEAR:
        return []
    says = f"{share:.0%} of the backlog quota's {space.limit:,} bytes is stored"
    do = "raise the quota, or let less wait: delayed messages stay stored until they are acknowledged"
    if space.policy == EVICTION:
        says += f", and {EVICTION} deletes the oldest, due or not"
        return [_of(facts, "quota", Verdict.FAULT, says, do)]
    return [_of(facts, "quota", Verdict.WARNING, f"{says}, then {space.policy} stops producers", do)]


def _expiry(facts: TopicFacts) -> list[Finding]:
    if not facts.expiry_ms or not facts.waiting.beyond.get(facts.expiry_ms):
        return []
    absent = [one for one in facts.subscriptions or () if not one.consumers and one.backlog]
    do = "connect a consumer, or lengthen it: pulsar-admin namespaces set-subscription-expiration-time"
    return [
        Finding(
            check="expiry",
            verdict=Verdict.WARNING,
            says="it has no consumer, and Pulsar deletes it with all that waits after "
            f"{in_words(facts.expiry_ms)} without one; messages wait longer",
            do=do,
            topic=facts.name,
            subscription=one.name,
        )
        for one in absent
    ]


def _acks(facts: TopicFacts) -> list[Finding]:
    most = facts.ack_ranges_max
    return [
        Finding(
            check="ack-ranges",
            verdict=Verdict.WARNING,
            says=f"it has {one.ack_ranges:,} ranges of acknowledgements, and Pulsar stores {most:,}: "
            "it forgets those beyond at an unload, silently",
            do="tidegate attach --tune-acks, then restart the broker",
            topic=facts.name,
            subscription=one.name,
        )
        for one in facts.subscriptions or ()
        if most and one.ack_ranges >= _NEAR * most
    ]


def _delay_quota(facts: TopicFacts) -> list[Finding]:
    return [
        Finding(
            check="delay-quota",
            verdict=Verdict.WARNING if held > quota else Verdict.NOTE,
            says=f"{counted(held, 'message', 'wait')}, {'more than' if held > quota else 'near'} its quota "
            f"of {quota:,}; nothing is refused",
            do="are consumers behind, do producers delay more than was planned? Else raise it: "
            "tidegate policy set TOPIC quota",
            topic=facts.name,
            subscription=name,
        )
        for name, (held, quota) in (facts.kept or {}).items()
        if quota is not None and held >= _NEAR * quota
    ]


def _unconsumed(facts: TopicFacts) -> list[Finding]:
    found = []
    for one in facts.subscriptions or ():
        if one.consumers or not one.backlog:
            continue
        since_ms = facts.now_ms - one.last_ms
        never = not one.last_ms
        for_long = never or since_ms >= _DAY_MS
        when = (
            "has never had a consumer" if never else f"has had no consumer for {in_words(max(0, since_ms))}"
        )
        keep = counted(one.backlog, "message", "keep")
        says = f"it {when}; its {keep} ledgers of {facts.storage_bytes:,} bytes"
        found.append(
            Finding(
                check="unconsumed",
                verdict=Verdict.WARNING if for_long else Verdict.NOTE,
                says=says,
                do="connect a consumer, or delete it if unused: pulsar-admin topics unsubscribe",
                topic=facts.name,
                subscription=one.name,
            )
        )
    return found


def _units(facts: TopicFacts) -> list[Finding]:
    sample = facts.sample
    if sample is None:
        return []
    found = []
    if sample.publish_ms is not None and sample.publish_ms > facts.now_ms + _PUBLISHED_AHEAD_MS:
        ahead = in_words(sample.publish_ms - facts.now_ms)
        says = f"its newest message was published {ahead} in the future: the producer's clock is ahead"
        do = "synchronise the producer's clock: deliver_after counts from it"
        found.append(_of(facts, "clocks", Verdict.WARNING, says, do))
    if sample.deliver_at_ms is None:
        return found
    do = "correct the producer: deliver_at is in milliseconds since 1970, deliver_after a duration"
    if sample.deliver_at_ms < _EPOCH_S_MS:
        says = f"its newest message has deliver_at {sample.deliver_at_ms}, a time in 1970 to 1973: seconds, "
        says += "where milliseconds are meant; it comes at once"
        found.append(_of(facts, "delays", Verdict.WARNING, says, do))
    elif sample.publish_ms is not None and 0 < sample.deliver_at_ms - sample.publish_ms < _SHORT_MS:
        says = (
            f"its newest message is delayed by {sample.deliver_at_ms - sample.publish_ms} ms: seconds, where "
        )
        says += "milliseconds are meant?"
        found.append(_of(facts, "delays", Verdict.NOTE, says, do))
    return found
