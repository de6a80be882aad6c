#!/usr/bin/env bash
# rocksdict 0.3.29: a WriteBatch does not use the set_dumps of the database that it is written to.
#
# Does:    gives a database dumps and loads of JSON, then writes a dict by db[key] = … and another by a batch.
# Expected: both can be read.
# Seen:    the first one can; reading the second raises UnicodeDecodeError, and so does listing items(): the batch has
#          pickled it. A batch has a set_dumps of its own, which must be called for each.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from rocksdict import Rdict, WriteBatch

db = Rdict(sys.argv[1] + "/db")
db.set_dumps(lambda value: json.dumps(value).encode())
db.set_loads(json.loads)
db["direct"] = {"a": 1}
batch = WriteBatch()
batch["batched"] = {"b": 2}
db.write(batch)


def read(do):
    try:
        return do()
    except UnicodeDecodeError:
        return "UnicodeDecodeError"


seen = read(lambda: db["direct"]), read(lambda: db["batched"]), read(lambda: list(db.items()))
print(f"direct {seen[0]}, batched {seen[1]}, items {seen[2]}")
sys.exit(seen != ({"a": 1}, "UnicodeDecodeError", "UnicodeDecodeError"))
PYTHON
