#!/usr/bin/env bash
# prometheus_client 0.26.0: the gauges due.now and due_now come out as one series with two values.
#
# Does:    registers two gauges whose names differ in a dot, which the library accepts, and writes the classic format.
# Expected: two names, or a refusal of the second one, as there is one of equal names.
# Seen:    "due_now 1.0" and "due_now 2.0", each with its HELP and TYPE: a scrape sees the same series twice.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check prometheus_client==0.26.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from prometheus_client import CollectorRegistry, Gauge, generate_latest

registry = CollectorRegistry()
Gauge("due.now", "one", registry=registry).set(1)
Gauge("due_now", "the other", registry=registry).set(2)
seen = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
print(seen)
sys.exit(seen != ["due_now 1.0", "due_now 2.0"])
PYTHON
