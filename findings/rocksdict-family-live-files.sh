#!/usr/bin/env bash
# rocksdict 0.3.29: live_files() of a column family has the files of all families, and does not say whose each is.
#
# Does:    writes and flushes a row of the default family and one of another, then asks the other for its files.
# Expected: its own file, or the name of the family in each row, which RocksDB tells.
# Seen:    both files; a row has name, size, level, start_key, end_key and the numbers of entries and deletions.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Options, Rdict

db = Rdict(sys.argv[1] + "/db")
family = db.create_column_family("family", Options())
db["default"] = family["other"] = 1
db.flush()
family.flush()
files = family.live_files()
seen = sorted(one["start_key"] for one in files), sorted({name for one in files for name in one})
print(f"keys of the family's files: {seen[0]}; columns: {seen[1]}")
sys.exit(seen[0] != ["default", "other"] or any("family" in name for name in seen[1]))
PYTHON
