#!/usr/bin/env bash
# rocksdict 0.3.29: delete_range() of a WriteBatch forgets set_default_column_family and deletes elsewhere.
#
# Does:    fills two families with a, b, c; a batch whose default is the second one deletes a to c (exclusive) as
#          a range; another such batch deletes a by itself.
# Expected: the range goes from the second family, as the single key does.
# Seen:    the range is deleted from the database's default family, which is left with ['c'], and the second one
#          keeps ['a', 'b', 'c']; `del batch['a']` goes where it should. delete_range(begin, end, family) does, too.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Options, Rdict, WriteBatch

db = Rdict(sys.argv[1] + "/db")
family = db.create_column_family("family", Options())
handle = db.get_column_family_handle("family")
for key in "abc":
    db[key] = family[key] = 1

batch = WriteBatch()
batch.set_default_column_family(handle)
batch.delete_range("a", "c")
db.write(batch)
ranged = list(db.keys()), list(family.keys())
print(f"after delete_range: default {ranged[0]}, family {ranged[1]}")

batch = WriteBatch()
batch.set_default_column_family(handle)
del batch["a"]
db.write(batch)
single = list(family.keys())
print(f"after del batch['a']: family {single}")
sys.exit(ranged != (["c"], ["a", "b", "c"]) or single != ["b", "c"])
PYTHON
