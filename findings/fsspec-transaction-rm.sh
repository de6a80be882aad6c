#!/usr/bin/env bash
# fsspec 2026.9.0: a removal within a transaction that fails stays done, though a write is taken back.
#
# Does:    within `with fs.transaction:` replaces one local file, removes another, and raises.
# Expected: both files as before, or rm refused there.
# Seen:    the replaced file has its old content; the removed one is gone.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check fsspec==2026.9.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from pathlib import Path

import fsspec

fs = fsspec.filesystem("file")
replaced, removed = Path(sys.argv[1], "replaced"), Path(sys.argv[1], "removed")
replaced.write_text("old")
removed.write_text("old")
try:
    with fs.transaction:
        with fs.open(str(replaced), "w") as file:
            file.write("new")
        fs.rm(str(removed))
        raise KeyError
except KeyError:
    pass
seen = replaced.read_text(), removed.exists()
print(f"replaced: {seen[0]}, the removed one exists: {seen[1]}")
sys.exit(seen != ("old", False))
PYTHON
