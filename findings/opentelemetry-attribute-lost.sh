#!/usr/bin/env bash
# opentelemetry-exporter-prometheus 0.66b2: beside an attribute a_b, a.b is lost, and two series become one.
#
# Does:    adds 2 and 5 to a counter of OpenTelemetry's SDK 1.45.2 with the attributes queue.name "first" and "second",
#          each with queue_name "due", and writes the metrics.
# Expected: two series: of keys that become one, the values "MUST be concatenated together, separated by ;", says
#          OpenTelemetry's specification for Prometheus, as first;due and second;due.
# Seen:    twice the same labels, with queue_name="due", and the values 2 and 5: the last one wins, without a warning.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check \
    opentelemetry-exporter-prometheus==0.66b2 opentelemetry-sdk==1.45.2 prometheus_client==0.26.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import re
import sys

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest

counter = MeterProvider(metric_readers=[PrometheusMetricReader()]).get_meter("queues").create_counter("due")
for name, number in (("first", 2), ("second", 5)):
    counter.add(number, {"queue.name": name, "queue_name": "due"})
lines = [line for line in generate_latest(REGISTRY).decode().splitlines() if line.startswith("due_total{")]
seen = [(re.search('queue_name="([^"]*)"', line)[1], line.split()[-1]) for line in lines]
same = len({line.split("} ")[0] for line in lines}) == 1
print(f"(queue_name, value): {seen}; all labels the same: {same}")
sys.exit(sorted(seen) != [("due", "2.0"), ("due", "5.0")] or not same)
PYTHON
