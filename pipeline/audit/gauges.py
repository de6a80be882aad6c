"""The audit's Prometheus gauges, beside production.

Invariant: names and labels follow Prometheus' conventions (base units; `_total` for counts that only grow, so
not for lost messages, some of which are found again).
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from tidegate.pipeline.audit.judge import Verdict
from tidegate.pipeline.audit.summary import Figures
from tidegate.pipeline.audit.totals import Totals
from tidegate.pipeline.errors import OptionError
from tidegate.plugin.checks import RepeatCause

_COUNTED = {
    "delivered": Verdict.DELIVERED,
    "unknown": Verdict.UNKNOWN,
    "out_of_order": Verdict.OUT_OF_ORDER,
    "pending": Verdict.PENDING,
}


class Gauges:
    """The metrics of an audit on `/metrics`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_each = ["subscription"]

        def gauge(name: str, words: str, labels: list[str] | None = None) -> Gauge:
            return Gauge(f"tidegate_audit_{name}", words, labels or [], registry=self.registry)

        self._sent = gauge("sent_messages", "Messages that were sent.")
        self._counts = {
            name: gauge(f"{name}_messages", words, of_each)
            for name, words in {
                "received": "Deliveries that were recorded, repeats included.",
                "delivered": "Messages that were delivered.",
                "lost": "Messages that should have come and have not.",
                "early": "Messages delivered before they were due.",
                "unknown": "Messages received that nobody has sent.",
                "out_of_order": "Messages delivered after one of their key that should have followed.",
                "pending": "Messages that are still to come.",
            }.items()
        }
        self._repeated = gauge("repeated_deliveries", "Deliveries again, by cause.", [*of_each, "cause"])
        self._late = gauge("lateness_seconds", "How late messages came.", [*of_each, "quantile"])
        self._unreadable = gauge("unreadable_rows", "Rows of a record that could not be read.")
        self._watermark = gauge("watermark_timestamp_seconds", "No record older than this is expected.")
        self._round = gauge("last_round_timestamp_seconds", "When the last round ended.")
        self._took = gauge("last_round_duration_seconds", "How long the last round took.")

    def serve(self, host: str, port: int) -> int:
        """Serve them; returns the port (0 chooses a free one). Raises ``OptionError``."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise OptionError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        return int(server.server_port)

    def round_ended(self, ended_s: float, took_s: float) -> None:
        """Set the end of the last round, in seconds since the epoch, and its duration."""
        self._round.set(ended_s)
        self._took.set(took_s)

    def show(self, totals: Totals) -> None:
        """Set every count."""
        self._sent.set(totals.sent)
        self._unreadable.set(totals.unreadable)
        self._watermark.set(totals.watermark_ms / 1000)
        for name, one in totals.by_subscription.items():
            self._show_one(name, one)

    def _show_one(self, name: str, one: Figures) -> None:
        found = one.verdicts
        for what, verdict in _COUNTED.items():
            self._counts[what].labels(name).set(found[verdict])
        self._counts["received"].labels(name).set(one.receipts)
        self._counts["lost"].labels(name).set(found[Verdict.LOST] - found[Verdict.FOUND])
        self._counts["early"].labels(name).set(one.early)
        for cause in RepeatCause:
            self._repeated.labels(name, cause.name.lower()).set(one.causes[cause])
        late = one.late()
        for quantile, value in (("0.5", late.p50_ms), ("0.99", late.p99_ms), ("1", late.max_ms)):
            self._late.labels(name, quantile).set(value / 1000)
