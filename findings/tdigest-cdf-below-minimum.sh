#!/usr/bin/env bash
# tdigest 0.5.2.2: cdf() of a value below all values is not 0.
#
# Does:    puts 50 times 1 and 50 times 100 into a digest, and asks for the share of values up to 0 and up to 1.
# Expected: 0 up to 0, and 0.5 up to 1, as half of the values are 1; percentile(0) knows that 1 is the least.
# Seen:    0.245 and 0.25: a centroid is spread over half the way to its neighbour, on both sides.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check tdigest==0.5.2.2
"$dir/venv/bin/python" - <<'PYTHON'
import sys

from tdigest import TDigest

digest = TDigest()
digest.batch_update([1] * 50 + [100] * 50)
seen = digest.percentile(0), round(digest.cdf(0), 3), round(digest.cdf(1), 3)
print(f"least value {seen[0]:g}; share up to 0: {seen[1]}; share up to 1: {seen[2]}")
sys.exit(seen != (1, 0.245, 0.25))
PYTHON
