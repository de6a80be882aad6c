"""The name of a subscription."""

from __future__ import annotations

from typing import NamedTuple


class SubscriptionName(NamedTuple):
    """A topic and the name of a subscription on it."""

    topic: str
    subscription: str

    def __str__(self) -> str:
        return f"{self.topic}:{self.subscription}"
