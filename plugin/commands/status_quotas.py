"""The quotas of ``tidegate policy`` in ``tidegate status``: only a broker knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.plugin.shared.delay_policies import quota_for

if TYPE_CHECKING:
    from tidegate.plugin.doctor.broker import BrokerAdmin

TOPICS_MAX = 100
"""A broker is asked twice a topic at most."""


def add_quotas(subscriptions: list[dict[str, Any]], admin: BrokerAdmin) -> str | None:
    """Give each subscription its ``quota``: None without one, and where the broker does not answer.

    Of the first ``TOPICS_MAX`` topics. Returns a line about unknown quotas; None if all are known.
    """
    topics = dict.fromkeys(one["topic"] for one in subscriptions)
    asked = {topic: admin.properties(topic) for topic in list(topics)[:TOPICS_MAX]}
    for one in subscriptions:
        places = asked.get(one["topic"])
        one["quota"] = None if places is None else quota_for(places, one["subscription"])
    unknown = sum(asked.get(topic) is None for topic in topics)
    if not unknown:
        return None
    told = admin.failure or "; ".join(dict.fromkeys(admin.refusals))
    return f"quotas of {unknown:,} topics are not known" + (f": {admin.base}: {told}" if told else "")
