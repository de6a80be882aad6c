"""Names of topics as people write them."""

from __future__ import annotations

DEFAULTS = "persistent://public/default/"
"""The parts that Pulsar's tools and ours omit."""


def full_topic(topic: str) -> str:
    """A topic with the omitted parts."""
    if "://" in topic:
        return topic
    return f"persistent://{topic}" if topic.count("/") == 2 else f"{DEFAULTS}{topic}"


def short_topic(topic: str) -> str:
    """A topic without ``DEFAULTS``."""
    return topic.removeprefix(DEFAULTS)
