"""The standing of subscriptions at this daemon: with a pace, served, or not; the worst get series."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.index import IndexStats, SubscriptionName
from tidegate.plugin.daemon.report import Daemon
from tidegate.plugin.telemetry.survey import Standing, Worst, worst

if TYPE_CHECKING:
    from tidegate.plugin.daemon.stream import Stream


def worst_of(daemon: Daemon, each: Iterable[IndexStats]) -> Worst:
    """The subscriptions that get series of their own."""

    def stands(name: SubscriptionName) -> Standing:
        return standing_of(daemon.ownership.get(name))

    return worst(each, daemon.clock.now_ms(), daemon.settings.metrics_subscriptions, stands)


def standing_of(stream: Stream | None) -> Standing:
    """The standing of a subscription with this stream, None for none."""
    if stream is None:
        return Standing.UNSERVED
    return Standing.PACED if stream.pace.is_on else Standing.SERVED
