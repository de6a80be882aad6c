#!/usr/bin/env bash
# prometheus_client 0.26.0: decorators count nothing of a coroutine: no time, no exception, none in progress.
#
# Does:    decorates a function and a coroutine with time(), count_exceptions() and track_inprogress(); each sleeps 0.1
#          s and raises.
# Expected: the same of both, or a refusal: its docs have the three as decorators, without a word on coroutines.
# Seen:    of the coroutine 0.00 s, no exception and 0 in progress: the call is measured that makes the coroutine, not
#          its run.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check prometheus_client==0.26.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import asyncio
import contextlib
import sys
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary


def decorated(function):
    registry = CollectorRegistry()
    busy = Gauge("busy", "calls", registry=registry)
    timed = Summary("seconds", "of a call", registry=registry).time()
    counted = Counter("failed", "calls", registry=registry).count_exceptions()
    return registry, timed(counted(busy.track_inprogress()(function)))


in_progress = []


def plain():
    in_progress.append(registries[0].get_sample_value("busy"))
    time.sleep(0.1)
    raise ValueError


async def coroutine():
    in_progress.append(registries[1].get_sample_value("busy"))
    await asyncio.sleep(0.1)
    raise ValueError


registries, calls = zip(decorated(plain), decorated(coroutine), strict=True)
with contextlib.suppress(ValueError):
    calls[0]()
with contextlib.suppress(ValueError):
    asyncio.run(calls[1]())
seen = []
for name, registry, busy in zip(("function", "coroutine"), registries, in_progress, strict=True):
    seconds, failed = (registry.get_sample_value(sample) for sample in ("seconds_sum", "failed_total"))
    print(f"{name}: {seconds:.2f} s, {failed:.0f} failed, {busy:.0f} in progress")
    seen.append((seconds >= 0.1, failed, busy))
sys.exit(seen != [(True, 1, 1), (False, 0, 0)])
PYTHON
