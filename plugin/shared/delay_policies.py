"""The rules of an operator for delayed messages, as properties of topics and namespaces.

``tidegate.levels`` and ``tidegate.quota`` are rules for all subscriptions, ``tidegate.quota[audit-*]`` for
those with a fitting name; the shim (``DelayPolicy.java``) reads them. Invariant: the shim can read any value
that passes here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.plugin.shared.durations import duration, milliseconds

PREFIX = "tidegate."
EVERY = "*"
NOTHING = "none"
ROCKETMQ = "rocketmq"
LEVELS_MAX = 64
LEVEL_MS_MAX = 366 * 86_400_000
QUOTA_MAX = 1_000_000_000_000
_DIGITS_MAX, _WORD_MAX = 13, 40
_SWITCH = ("on", "off")
_PATTERN = re.compile(r"[\w.*~+:-]{1,200}", re.ASCII)
_KEY = re.compile(r"tidegate\.(\w+)(?:\[(.+)\])?", re.ASCII)


@dataclass(frozen=True)
class Rule:
    """A stored rule. subscriptions: the pattern of its names. key: of the property."""

    policy: str
    subscriptions: str
    value: str
    key: str


def _levels(text: str) -> str:
    if text == ROCKETMQ:
        return text
    words = text.split(",")
    if len(words) > LEVELS_MAX:
        raise ValueError(f"there can be {LEVELS_MAX} levels at most, not {len(words)}")
    levels_ms = [milliseconds(one[:_WORD_MAX]) for one in words]
    for level_ms, one in zip(levels_ms, words, strict=True):
        if not 1 <= level_ms <= LEVEL_MS_MAX:
            raise ValueError(f"a level is 1ms to 366d, not {one.strip()[:_WORD_MAX]}")
    return ",".join(map(duration, levels_ms))


def _quota(text: str) -> str:
    digits = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not (digits and 1 <= int(text) <= QUOTA_MAX):
        raise ValueError(f"a quota is a number of messages, 1 to {QUOTA_MAX:,}, not {text[:80]}")
    return str(int(text))


def _on_or_off(text: str) -> str:
    if text not in _SWITCH:
        raise ValueError(f"index_log is {' or '.join(_SWITCH)}, not {text[:80]}")
    return text


POLICIES: Mapping[str, Callable[[str], str]] = {"levels": _levels, "quota": _quota, "index_log": _on_or_off}
"""Each policy, and the check of its value."""


def value_of(policy: str, text: str) -> str:
    """The stored form of a value. Raises ``ValueError`` with the requirement."""
    text = text.strip()
    return text if text == NOTHING else POLICIES[policy](text)


def key_of(policy: str, subscriptions: str) -> str:
    """The name of the property. Raises ``ValueError`` for a pattern that no property can have."""
    if not _PATTERN.fullmatch(subscriptions):
        raise ValueError(
            "a pattern of subscriptions has letters, digits, . _ - ~ + : and * for anything, "
            f"not {subscriptions[:80]}"
        )
    return f"{PREFIX}{policy}" if subscriptions == EVERY else f"{PREFIX}{policy}[{subscriptions}]"


def quota_for(places: Sequence[Mapping[str, str]], subscription: str) -> int | None:
    """The quota of a subscription by the properties of its topic, then its namespace, as in the shim.

    None for no quota, and for a rule that the shim cannot read.
    """
    for place in places:
        rules = [rule for rule in rules_of(place) if rule.policy == "quota" and _fits(rule, subscription)]
        if rules:
            value = min(rules, key=lambda rule: (-len(rule.key), rule.key)).value.strip()
            try:
                return None if value == NOTHING else int(_quota(value))
            except ValueError:
                return None
    return None


def _fits(rule: Rule, subscription: str) -> bool:
    parts = rule.subscriptions.split("*")
    if len(parts) == 1:
        return parts[0] == subscription
    at, end = len(parts[0]), len(subscription) - len(parts[-1])
    if at > end or not (subscription.startswith(parts[0]) and subscription.endswith(parts[-1])):
        return False
    for part in parts[1:-1]:
        found = subscription.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def rules_of(properties: Mapping[str, str]) -> list[Rule]:
    """The rules among the properties, by name; also unreadable ones."""
    found = [(_KEY.fullmatch(key), value) for key, value in sorted(properties.items())]
    return [
        Rule(match[1], match[2] or EVERY, value, match[0])
        for match, value in found
        if match and match[1] in POLICIES
    ]
