"""Names of Pulsar 5's scalable topics: ``topic://t/n/orders`` has segments ``segment://t/n/orders/0000-7fff-1``."""

from __future__ import annotations

_SEGMENT, _WHOLE = "segment://", "topic://"


def scalable_of(topic: str) -> str | None:
    """The scalable topic that has this segment; None for any other topic."""
    if not topic.startswith(_SEGMENT):
        return None
    whole, _, segment = topic.removeprefix(_SEGMENT).rpartition("/")
    return f"{_WHOLE}{whole}" if whole and segment else None
