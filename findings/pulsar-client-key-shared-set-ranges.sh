#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): set_sticky_ranges of a Key_Shared policy adds to the ranges that it has.
#
# Does:    makes a sticky policy of (0, 10) and gives its policy() the ranges (20, 30), then (5, 8).
# Expected: (5, 8) alone, as the last set; or an error, for (5, 8) is within (0, 10), and [(0, 10), (5, 8)] is refused.
# Seen:    all three are there: each call adds, and looks for overlaps only among its own.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - <<'PYTHON'
import sys

from pulsar import ConsumerKeySharedPolicy, KeySharedMode

policy = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 10)])
policy.policy().set_sticky_ranges([(20, 30)])
policy.policy().set_sticky_ranges([(5, 8)])
try:
    refused = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 10), (5, 8)]).sticky_ranges
except ValueError as error:
    refused = str(error)
print(f"after three calls {policy.sticky_ranges}; at once: {refused}")
sys.exit(policy.sticky_ranges != [(0, 10), (20, 30), (5, 8)] or refused != "Ranges for KeyShared policy with overlap.")
PYTHON
