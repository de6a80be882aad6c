"""Rules as properties: a value that passes is one that the shim reads (see `DelayPolicyTest`)."""

from __future__ import annotations

import pytest

from tidegate.plugin.shared.delay_policies import Rule, key_of, quota_for, rules_of, value_of


@pytest.mark.parametrize(
    ("policy", "text", "stored"),
    [
        ("levels", "rocketmq", "rocketmq"),
        ("levels", " 1s, 5s,1m ", "1s,5s,1m"),
        ("levels", "1 s", "1s"),
        ("levels", "1\ts,0000000000002s", "1s,2s"),
        ("levels", "none", "none"),
        ("quota", "100000", "100000"),
        ("quota", "0010", "10"),
        ("quota", "none", "none"),
        ("index_log", " off ", "off"),
        ("index_log", "on", "on"),
    ],
)
def test_values(policy: str, text: str, stored: str) -> None:
    assert value_of(policy, text) == stored


@pytest.mark.parametrize("text", ["", "10", "0s", "1s,,2s", "1.5s", "-1s", "367d", "99999999999999s", "1y"])
def test_no_levels(text: str) -> None:
    with pytest.raises(ValueError, match=r"level|duration"):
        value_of("levels", text)


def test_too_many_levels() -> None:
    with pytest.raises(ValueError, match="64 levels at most, not 65"):
        value_of("levels", ",".join(f"{n}s" for n in range(1, 66)))


@pytest.mark.parametrize(
    "text",
    ["", "0", "-5", "1e6", "10000000000001", "1_000", "\u0663", "1" * 5_000, "00000000000001" + "0" * 20],
)
def test_no_quota(text: str) -> None:
    with pytest.raises(ValueError, match="a quota is a number of messages"):
        value_of("quota", text)


def test_keys_and_rules_belong_together() -> None:
    assert key_of("quota", "*") == "tidegate.quota"
    assert key_of("quota", "audit-*") == "tidegate.quota[audit-*]"
    properties = {key_of("quota", one): "5" for one in ("*", "audit-*")} | {
        "owner": "team",
        "tidegate.other": "1",
    }
    assert rules_of(properties) == [
        Rule("quota", "*", "5", "tidegate.quota"),
        Rule("quota", "audit-*", "5", "tidegate.quota[audit-*]"),
    ]
    written_out = rules_of({"tidegate.quota[*]": "5"})
    assert written_out == [Rule("quota", "*", "5", "tidegate.quota[*]")], "another tool may have set it"


@pytest.mark.parametrize("pattern", ["", "a/b", "a]b", "a b", "x" * 201, "grün"])
def test_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match="a pattern of subscriptions has letters"):
        key_of("quota", pattern)


TOPIC = {"tidegate.quota": "1", "tidegate.quota[audit-*]": "2", "tidegate.quota[audit-e*u]": "3"}


@pytest.mark.parametrize(
    ("topic", "namespace", "subscription", "quota"),
    [
        (TOPIC, {}, "shop", 1),
        (TOPIC, {}, "audit-us", 2),
        (TOPIC, {}, "audit-eu", 3),
        (TOPIC, {}, "audit-e", 2),
        ({"owner": "team"}, {"tidegate.quota": "500"}, "shop", 500),
        ({"tidegate.quota": "none"}, {"tidegate.quota": "500"}, "shop", None),
        ({"tidegate.quota": " 7 "}, {}, "shop", 7),
        ({"tidegate.quota": "many"}, {"tidegate.quota": "500"}, "shop", None),
        ({"tidegate.quota[a*b*c]": "4"}, {}, "abc", 4),
        ({"tidegate.quota[a*b*c]": "4"}, {}, "ac", None),
        ({"tidegate.quota[ab*bc]": "4"}, {}, "abc", None),
        ({"tidegate.quota[other]": "4"}, {}, "shop", None),
        ({}, {}, "shop", None),
    ],
)
def test_the_quota_of_a_subscription_is_that_of_the_shim(
    topic: dict[str, str], namespace: dict[str, str], subscription: str, quota: int | None
) -> None:
    """As `DelayPolicyTest` has it."""
    assert quota_for([topic, namespace], subscription) == quota


@pytest.mark.parametrize("text", ["", "OFF", "true", "0"])
def test_no_switch(text: str) -> None:
    with pytest.raises(ValueError, match="index_log is on or off"):
        value_of("index_log", text)
