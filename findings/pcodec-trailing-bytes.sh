#!/usr/bin/env bash
# pcodec 1.1.0: bytes after the first file are passed over in silence.
#
# Does:    decompresses two files put one after the other, as files of gzip may be, and a file with other bytes behind.
# Expected: the numbers of both files, or an error.
# Seen:    the numbers of the first file only, both times; nothing tells how many bytes were read.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pcodec==1.1.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import numpy as np
from pcodec import ChunkConfig, standalone

first = standalone.simple_compress(np.arange(3), ChunkConfig())
second = standalone.simple_compress(np.arange(10, 15), ChunkConfig())
seen = [standalone.simple_decompress(data).tolist() for data in (first + second, first + b"other")]
print(f"of both files {seen[0]}, with other bytes behind {seen[1]}")
sys.exit(seen != [[0, 1, 2]] * 2)
PYTHON
