#!/usr/bin/env bash
# crick 0.0.8: cdf(0) of 990 zeros and ten fives is 0.
#
# Does:    asks for the fraction of values that are at most 0, 1 and 5, and for the quantile 0.9. fastdigest 0.12.0 gets
#          the same values, and the same questions.
# Expected: about 0.99, 0.99 and 1, and a quantile of 0: cdf() is the "fraction of all points added to this digest which
#          are <= x".
# Seen:    0, 0.989 and 1, and a quantile of 0: the smallest value counts as below all, however often it is there.
#          fastdigest, whose cdf() is a "cumulative probability", says 0, and 0.991 at the largest value.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check crick==0.0.8 fastdigest==0.12.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import crick
import fastdigest
import numpy as np

values = [0.0] * 990 + [5.0] * 10
digest = crick.TDigest()
digest.update(np.array(values))
seen = {}
for name, one in (("crick", digest), ("fastdigest", fastdigest.TDigest.from_values(values))):
    seen[name] = [round(float(one.cdf(value)), 3) for value in (0, 1, 5)], float(one.quantile(0.9))
    print(f"{name}: cdf of 0, 1 and 5: {seen[name][0]}; quantile 0.9: {seen[name][1]}")
sys.exit(any(cdf[0] != 0 or cdf[1] < 0.98 or quantile != 0 for cdf, quantile in seen.values()))
PYTHON
