"""Names of topics as people write them."""

from __future__ import annotations

_SHORT = "persistent://public/default/"


def full_topic(topic: str) -> str:
    """A topic with the parts that Pulsar's tools omit."""
    if "://" in topic:
        return topic
    return f"persistent://{topic}" if topic.count("/") == 2 else f"{_SHORT}{topic}"
