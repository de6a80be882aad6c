#!/usr/bin/env bash
# pcodec 1.1.0: an empty array comes back as None.
#
# Does:    compresses an int64 array of no elements and decompresses it.
# Expected: an int64 array of no elements.
# Seen:    None: the file keeps the header and no chunk, and the type of the numbers is in the chunks.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pcodec==1.1.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import numpy as np
from pcodec import ChunkConfig, standalone

packed = standalone.simple_compress(np.array([], dtype=np.int64), ChunkConfig())
seen = standalone.simple_decompress(packed)
print(f"{len(packed)} bytes, decompressed: {seen}")
sys.exit(seen is not None)
PYTHON
