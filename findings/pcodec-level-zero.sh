#!/usr/bin/env bash
# pcodec 1.1.0: level 0 looks at differences no more: regular times take 300 times as much as at level 1.
#
# Does:    compresses 10,000 times in milliseconds, one a second, at levels 0, 1 and 12.
# Expected: a lower level costs some size.
# Seen:    17,548 bytes at level 0, 56 at level 1, 56 at level 12: the first step is the only one that counts.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pcodec==1.1.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import numpy as np
from pcodec import ChunkConfig, standalone

times_ms = 1_700_000_000_000 + 1000 * np.arange(10_000)
seen = [len(standalone.simple_compress(times_ms, ChunkConfig(compression_level=level))) for level in (0, 1, 12)]
print(f"bytes at level 0: {seen[0]:,}, 1: {seen[1]}, 12: {seen[2]}")
sys.exit(seen[0] < 100 * seen[1] or seen[1] != seen[2])
PYTHON
