#!/usr/bin/env bash
# fsspec 2026.9.0: a transaction of a DirFileSystem keeps what was written before it failed.
#
# Does:    writes a file within `with fs.transaction:` and raises; on a local file system, on one in memory, and on
#          DirFileSystem(…, fs=local).
# Expected: no file on any of them.
# Seen:    none on the first two; the file is there with DirFileSystem, which notes the transaction itself and hands
#          the write to a file system that knows of none.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check fsspec==2026.9.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import fsspec
from fsspec.implementations.dirfs import DirFileSystem


def left(fs, path):
    try:
        with fs.transaction:
            with fs.open(path, "wb") as file:
                file.write(b"half")
            raise KeyError
    except KeyError:
        return fs.exists(path)


local = fsspec.filesystem("file")
seen = [
    left(local, sys.argv[1] + "/local"),
    left(fsspec.filesystem("memory"), "/memory"),
    left(DirFileSystem(sys.argv[1], fs=local), "dir"),
]
print(f"left behind: local {seen[0]}, memory {seen[1]}, dir {seen[2]}")
sys.exit(seen != [False, False, True])
PYTHON
