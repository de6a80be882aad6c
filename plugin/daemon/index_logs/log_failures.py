"""Failures of index logs: each one counts, and few get a line of the daemon's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import Clock, SubscriptionName
from tidegate.plugin.shared.seldom import Seldom, kind_of
from tidegate.plugin.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger


class LogFailures:
    """Reports them. One line for a kind of failure, not for each time and subscription."""

    def __init__(self, clock: Clock, metrics: Metrics, log: Logger) -> None:
        self._metrics = metrics
        self._log = log
        self._seldom = Seldom(clock.monotonic_ns)

    def report(self, name: SubscriptionName, what: str, error: Exception) -> None:
        """Report a failure; ``what`` is its kind."""
        self._metrics.index_log_failures.inc()
        more = self._seldom.more(what)
        if more is not None:
            self._log.warning(
                what, topic=name.topic, subscription=name.subscription, error=str(error), **more
            )

    def report_bug(self, name: SubscriptionName, error: Exception) -> None:
        """Report an impossible failure, with a traceback."""
        self._metrics.index_log_failures.inc()
        more = self._seldom.more(kind_of(error))
        if more is not None:
            self._log.error(
                "writing an index log failed unexpectedly, trying again; report it with the log",
                topic=name.topic,
                subscription=name.subscription,
                exc_info=error,
                **more,
            )
