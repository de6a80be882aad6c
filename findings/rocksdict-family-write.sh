#!/usr/bin/env bash
# rocksdict 0.3.29: write() of a column family puts a batch into the default family.
#
# Does:    writes a batch with a=1 through the object of a column family.
# Expected: the row is in that family.
# Seen:    the family stays empty and the default family has [('a', 1)]. With set_default_column_family on
#          the batch the row lands where it should.
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
batch = WriteBatch()
batch["a"] = 1
family.write(batch)
seen = list(family.items()), list(db.items())
print(f"family: {seen[0]}, default: {seen[1]}")
batch = WriteBatch()
batch.set_default_column_family(db.get_column_family_handle("family"))
batch["b"] = 2
family.write(batch)
told = list(family.items())
print(f"family, of a batch that was told so: {told}")
sys.exit(seen != ([], [("a", 1)]) or told != [("b", 2)])
PYTHON
