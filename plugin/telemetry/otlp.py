"""Pushes the metrics to a collector of OpenTelemetry, by OTLP over HTTP. Needs the extra ``otel``.

Invariants: a push has a scrape's state and series; one runs at a time, in its own thread: a slow collector
holds up nothing; a failing one is counted, and logged at the begin and the end of its failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from tidegate.plugin.errors import ConfigError
from tidegate.plugin.shared.extras import how_to_get
from tidegate.plugin.shared.shown import one_line, shown, without_passwords
from tidegate.plugin.telemetry.metrics import SubscriptionGauges
from tidegate.plugin.telemetry.otel_names import (
    DELAYED,
    NAMES,
    Kind,
    OtelName,
    attributes_of,
    topic_attributes,
)

if TYPE_CHECKING:
    import structlog
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import Metric as OtelMetric
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from prometheus_client.core import Metric

TIMEOUT_S = 10.0
SCOPE = "tidegate"
_REASON_MAX = 200
_EXPORTER = "opentelemetry.exporter.otlp.proto.http"


class Moment:
    """A moment's metrics: Prometheus' values, and the subscriptions with series of their own."""

    def __init__(self, families: Iterable[Metric], series: Sequence[SubscriptionGauges]) -> None:
        self.families = list(families)
        self.series = series


def require_otel() -> None:
    """Raise ``ConfigError`` without the packages of the extra."""
    try:
        found = importlib.util.find_spec(_EXPORTER)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise ConfigError(
            f"otlp needs OpenTelemetry's exporter, which is not installed: run {how_to_get('otel')}"
        )


class OtlpPush:
    """Pushes every ``interval_s`` from ``start`` to ``stop``.

    moment: the metrics of now. instance: tells daemons apart. started_ms: since when counters count.
    """

    def __init__(
        self,
        endpoint: str,
        interval_s: float,
        moment: Callable[[], Awaitable[Moment]],
        *,
        version: str,
        instance: str,
        started_ms: int,
        count: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._moment = moment
        self._version = version
        self._started_ns = started_ms * 1_000_000
        self._count = count
        self._loop = loop
        self._log = log
        self._resource = _resource(version, instance)
        self._heard = _LastMessage()
        self._exporter = _exporter(endpoint, self._heard)
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Push now, then every interval."""
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop pushing, without waiting for a push on its way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._exporter.shutdown(timeout_millis=0)

    async def _run(self) -> None:
        while True:
            began_s = self._loop.time()
            try:
                await self._beside(partial(self._push, await self._moment(), time.time_ns()))
            except Exception as error:  # the daemon continues without
                self._tell(f"{type(error).__name__}: {error}")
            else:
                self._tell(None)
            await asyncio.sleep(max(0.0, began_s + self._interval_s - self._loop.time()))

    async def _beside(self, work: Callable[[], None]) -> None:
        """Do the work in a thread that does not keep the daemon from ending."""
        done: asyncio.Future[None] = self._loop.create_future()

        def tell(error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def run() -> None:
            failure = None
            try:
                work()
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(tell, failure)

        threading.Thread(target=run, name="tidegate-otlp", daemon=True).start()
        await done

    def _push(self, moment: Moment, now_ns: int) -> None:
        """Push. Raises ``ConnectionError`` if the collector has not accepted it."""
        from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415

        data = metrics_data(
            moment, resource=self._resource, version=self._version, started_ns=self._started_ns, now_ns=now_ns
        )
        if self._exporter.export(data) is not MetricExportResult.SUCCESS:
            raise ConnectionError(self._heard.text or "the collector did not accept it")

    def _tell(self, failure: str | None) -> None:
        self._count("failed" if failure else "ok")
        if failure and not self._failing:
            self._log.warning(
                "the OpenTelemetry collector accepts no metrics, trying again",
                endpoint=self._endpoint,
                reason=failure,
            )
        elif self._failing and not failure:
            self._log.info("the OpenTelemetry collector accepts metrics again", endpoint=self._endpoint)
        self._failing = bool(failure)


def _resource(version: str, instance: str) -> Resource:
    """The daemon; OTEL_RESOURCE_ATTRIBUTES adds more, such as a cluster."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    return Resource.create(
        {"service.name": SCOPE, "service.version": version, "service.instance.id": instance}
    )


class _LastMessage(logging.Handler):
    """Keeps the last message: the exporter tells a failure's cause only to its logger."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = one_line(without_passwords(record.getMessage()))[:_REASON_MAX]


def _exporter(endpoint: str, heard: logging.Handler) -> OTLPMetricExporter:
    import requests  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

    # It logs each failure with a traceback; ours come once.
    library = logging.getLogger("opentelemetry")
    library.addHandler(heard)
    library.propagate = False
    session = requests.Session()
    # The environment's proxy settings are for the world outside.
    session.trust_env = urlsplit(endpoint).hostname not in ("127.0.0.1", "::1", "localhost")
    return OTLPMetricExporter(endpoint=endpoint, timeout=TIMEOUT_S, session=session)


def metrics_data(
    moment: Moment, *, resource: Resource, version: str, started_ns: int, now_ns: int
) -> MetricsData:
    """The moment's metrics in OTLP. started_ns, now_ns: since the epoch."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    times = _Times(started_ns, now_ns)
    metrics = [
        _converted(family, NAMES[family.name], times) for family in moment.families if family.name in NAMES
    ]
    metrics.append(_delayed(moment.series, times))
    scope = ScopeMetrics(InstrumentationScope(SCOPE, version), metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


class _Times:
    def __init__(self, started_ns: int, now_ns: int) -> None:
        self.started_ns = started_ns
        self.now_ns = now_ns


def _delayed(series: Sequence[SubscriptionGauges], times: _Times) -> OtelMetric:
    """Entries that are not handed out, as Pulsar counts them."""
    values = [
        (
            topic_attributes(shown(one.topic)) | {"pulsar.subscription.name": shown(one.subscription)},
            float(one.held - one.in_flight),
        )
        for one in series
    ]
    about = "The number of entries delayed for dispatching, of the subscriptions that have series"
    return _numbers(OtelName(DELAYED, "{entry}", Kind.UP_DOWN), about, values, times)


def _converted(family: Metric, name: OtelName, times: _Times) -> OtelMetric:
    if name.kind is Kind.HISTOGRAM:
        return _histogram(family, name, times)
    values = [(attributes_of(one.labels), float(one.value)) for one in family.samples]
    return _numbers(name, family.documentation, values, times)


def _numbers(
    name: OtelName, about: str, values: Iterable[tuple[Mapping[str, str | int], float]], times: _Times
) -> OtelMetric:
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        AggregationTemporality,
        Gauge,
        Metric,
        NumberDataPoint,
        Sum,
    )

    points = [
        NumberDataPoint(
            attributes, times.started_ns, times.now_ns, int(value) if value.is_integer() else value
        )
        for attributes, value in values
        if not math.isnan(value)  # nothing waits
    ]
    data = (
        Gauge(points)
        if name.kind is Kind.GAUGE
        else Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=name.kind is Kind.COUNTER)
    )
    return Metric(name.name, about, name.unit, data)


def _histogram(family: Metric, name: OtelName, times: _Times) -> OtelMetric:
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        Metric,
    )

    buckets = [one for one in family.samples if one.name.endswith("_bucket")]
    (total,) = (one.value for one in family.samples if one.name.endswith("_sum"))
    up_to = [int(one.value) for one in buckets]
    counts = [after - before for before, after in zip([0, *up_to], up_to, strict=False)]
    point = HistogramDataPoint(
        attributes={},
        start_time_unix_nano=times.started_ns,
        time_unix_nano=times.now_ns,
        count=up_to[-1],
        sum=float(total),
        bucket_counts=counts,
        explicit_bounds=[float(one.labels["le"]) for one in buckets[:-1]],
        min=cast(float, None),  # not kept, and OTLP may lack them
        max=cast(float, None),
    )
    return Metric(
        name.name, family.documentation, name.unit, Histogram([point], AggregationTemporality.CUMULATIVE)
    )
