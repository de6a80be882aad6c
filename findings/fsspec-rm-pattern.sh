#!/usr/bin/env bash
# fsspec 2026.9.0: rm of a folder that has brackets in its name removes others instead, though it is there.
#
# Does:    in memory, writes logs1/a and logs[12]/a, then rm("/logs[12]", recursive=True).
# Expected: the folder of that name goes; exists() says that there is one.
# Seen:    logs1/a is gone and logs[12]/a stays: the name is taken as a pattern. On disk (LocalFileSystem has an rm of
#          its own) the folder of that name goes.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check fsspec==2026.9.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import fsspec

seen = []
for fs, root in ((fsspec.filesystem("memory"), ""), (fsspec.filesystem("file"), sys.argv[1])):
    for folder in ("logs1", "logs[12]"):
        fs.makedirs(f"{root}/{folder}", exist_ok=True)
        fs.pipe_file(f"{root}/{folder}/a", b"")
    there = fs.exists(f"{root}/logs[12]")
    fs.rm(f"{root}/logs[12]", recursive=True)
    seen.append((there, fs.exists(f"{root}/logs1/a"), fs.exists(f"{root}/logs[12]/a")))
print(f"(logs[12] was there, logs1/a stays, logs[12]/a stays): memory {seen[0]}, disk {seen[1]}")
sys.exit(seen != [(True, False, True), (True, True, False)])
PYTHON
