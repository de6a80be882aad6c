"""The questions to the admin interface: what is refused, missing or strange is not guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.plugin.doctor.broker import REQUESTS_MAX, BrokerAdmin
from tidegate.plugin.doctor.topics import Quota, Sample
from tidegate.plugin.shared.rest import Answer, RestClient, UnansweredError

TOPIC = "persistent://public/default/orders-partition-3"
POLICIES = "/persistent/public/default/orders"
NAMESPACE = "/namespaces/public/default"


class Told(RestClient):
    """Answers by path below ``/admin/v2``: a document, a status, or an Answer."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []

    def request(self, method: str, url: str, body: object = None, *, timeout_s: float = 0) -> Answer:
        path = url.removeprefix("http://broker:8080/admin/v2")
        assert (method, body) == ("GET", None)
        self.asked.append(path)
        found = self.answers.get(path, 404)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Answer):
            return found
        return Answer(found, b"") if path not in self.answers else Answer(200, json.dumps(found).encode())


def admin(answers: Mapping[str, Any], seconds: list[float] | None = None) -> BrokerAdmin:
    left = iter(seconds or [])
    return BrokerAdmin("http://broker:8080", Told(answers), lambda: 5_000, lambda: next(left, 0.0))


def test_the_clock_comes_with_the_version() -> None:
    headers = {"date": "Thu, 01 Jan 1970 00:00:09 GMT"}
    version, reading = admin({"/brokers/version": Answer(200, b"4.0.8\n", headers)}).version()
    assert version == "4.0.8"
    assert reading is not None
    assert reading.ahead_ms == (4_000, 5_000)


@pytest.mark.parametrize("date", ["", "yesterday"])
def test_an_answer_without_a_date_has_no_clock(date: str) -> None:
    assert admin({"/brokers/version": Answer(200, b"4.0.8", {"date": date})}).version() == ("4.0.8", None)


def test_a_partition_has_the_policies_of_its_topic_and_they_are_asked_once() -> None:
    asking = admin(
        {
            f"{POLICIES}/messageTTL?applied=true": 60,
            f"{POLICIES}/backlogQuotaMap?applied=true": {
                "message_age": {"limitTime": 9, "policy": "producer_exception"},
                "destination_storage": {"limitSize": 100, "policy": "consumer_backlog_eviction"},
            },
            f"{NAMESPACE}/subscriptionExpirationTime": 2,
        }
    )
    for _ in range(2):
        assert asking.ttl_ms(TOPIC, {}) == 60_000
        assert asking.quotas(TOPIC) == (
            Quota(9_000, "producer_exception"),
            Quota(100, "consumer_backlog_eviction"),
        )
        assert asking.expiry_ms(TOPIC, {}) == 120_000
    assert len(asking._client.asked) == 3  # type: ignore[attr-defined]


def test_without_policies_of_topics_the_namespace_has_them_then_the_broker() -> None:
    runtime = {"ttlDurationDefaultInSeconds": "7", "subscriptionExpirationTimeMinutes": "1"}
    assert admin({f"{NAMESPACE}/messageTTL": 60}).ttl_ms(TOPIC, runtime) == 60_000
    nothing: dict[str, Any] = {
        f"{NAMESPACE}/messageTTL": None,
        f"{NAMESPACE}/subscriptionExpirationTime": None,
        f"{NAMESPACE}/backlogQuotaMap": {},
    }
    assert admin(nothing).ttl_ms(TOPIC, runtime) == 7_000
    assert admin(nothing).ttl_ms(TOPIC, {}) == 0
    assert admin(nothing).expiry_ms(TOPIC, runtime) == 60_000
    assert admin(nothing).quotas(TOPIC) == (Quota(0, ""), Quota(0, ""))


def test_what_is_refused_is_unknown_and_kept() -> None:
    refused = Answer(401, b'{"reason": "no token"}')
    asking = admin({f"{NAMESPACE}/messageTTL": refused, f"{NAMESPACE}/backlogQuotaMap": refused})
    assert asking.ttl_ms(TOPIC, {}) is None
    assert asking.quotas(TOPIC) == (None, None)
    assert asking.expiry_ms(TOPIC, {}) is None
    assert asking.refusals == ["401: no token"] * 2
    assert not asking.spent


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b'{"subscriptions": 5}', b'{"subscriptions": {"s": 1}}']
)
def test_strange_statistics_are_none(body: bytes) -> None:
    found = admin(
        {"/persistent/public/default/orders-partition-3/stats?getPreciseBacklog=false": Answer(200, body)}
    )
    stats = found.stats(TOPIC)
    assert stats is None or stats[1] == ()


def test_the_statistics_of_a_topic() -> None:
    subscription = {
        "consumers": [{}, {}],
        "msgBacklog": 5,
        "nonContiguousDeletedMessagesRanges": 6,
        "lastConsumedTimestamp": 7,
        "lastConsumedFlowTimestamp": 8,
    }
    document = {"storageSize": 9, "subscriptions": {"billing": subscription, "__compaction": {}}}
    path = "/persistent/public/default/a%2Fb/stats?getPreciseBacklog=false"
    stats = admin({path: document}).stats("persistent://public/default/a/b")
    assert stats is not None
    storage_bytes, (one,) = stats
    assert (storage_bytes, one.consumers, one.backlog, one.ack_ranges, one.last_ms) == (9, 2, 5, 6, 8)


@pytest.mark.parametrize(
    ("headers", "sample"),
    [
        ({}, Sample(None, None)),
        ({"x-pulsar-deliver-at-time": "1700000000"}, Sample(None, 1_700_000_000)),
        ({"x-pulsar-publish-time": "1970-01-01T00:00:01.5Z"}, Sample(1_500, None)),
        ({"x-pulsar-publish-time": "soon"}, Sample(None, None)),
    ],
)
def test_the_newest_message(headers: dict[str, str], sample: Sample) -> None:
    path = f"{POLICIES}-partition-3/examinemessage?initialPosition=latest&messagePosition=1"
    assert admin({path: Answer(200, b"", headers)}).newest(TOPIC) == sample


def test_after_no_answer_nothing_more_is_asked() -> None:
    asking = admin({"/brokers/version": UnansweredError("connection refused")})
    assert asking.version() == (None, None)
    assert asking.spent
    assert asking.runtime() == {}
    assert asking.failure == "connection refused"
    assert len(asking._client.asked) == 1  # type: ignore[attr-defined]


def test_questions_are_bounded_in_number_and_time() -> None:
    asking = admin({})
    for _ in range(REQUESTS_MAX + 5):
        asking.stats(TOPIC)
    assert len(asking._client.asked) == REQUESTS_MAX  # type: ignore[attr-defined]
    assert asking.spent
    late = admin({}, [0.0, 61.0])
    assert late.stats(TOPIC) is None
    assert late._client.asked == []  # type: ignore[attr-defined]
