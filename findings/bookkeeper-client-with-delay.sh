#!/usr/bin/env bash
# apache-bookkeeper-client 4.18.2 (Python): Retry.with_delay() drops its multiplier, and with a new maximum it breaks.
#
# Does:    makes a Retry whose delays triple, by with_delay(multiplier=3), and one with a new maximum, by
#          with_delay(maximum=0.02); the second one retries a function that fails once.
# Expected: a multiplier of 3; a second call after at most 0.02 s: "Return a copy of this retry with the given delay
#          options", each optional.
# Seen:    the old multiplier, 2; a TypeError in place of the second call, for the multiplier is None now: with_delay()
#          asks for the maximum where it means the multiplier.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check apache-bookkeeper-client==4.18.2
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import re
import sys

from bookkeeper.common.retry import Retry

retry = Retry(predicate=lambda error: isinstance(error, OSError), initial=0.01, maximum=1.0, multiplier=2.0)
multiplier = re.search(r"multiplier=([\d.]+)", str(retry.with_delay(multiplier=3.0)))[1]
calls = []


def call():
    calls.append("call")
    if len(calls) == 1:
        raise OSError
    return "done"


try:
    ended = retry.with_delay(maximum=0.02)(call)()
except TypeError as error:
    ended = type(error).__name__
print(f"with_delay(multiplier=3.0): {multiplier}; with_delay(maximum=0.02): {ended} after {len(calls)} call")
sys.exit((multiplier, ended, len(calls)) != ("2.0", "TypeError", 1))
PYTHON
