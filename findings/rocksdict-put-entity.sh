#!/usr/bin/env bash
# rocksdict 0.3.29: what put_entity stores reads as nothing through get and items.
#
# Does:    stores the columns x=1, y=2 under k with put_entity and reads them in each way.
# Expected: the columns, or an error that says that it is an entity.
# Seen:    get_entity has them; get('k') and items() give '' as the value; the other way round, get_entity gives
#          a plain value as a column without a name.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Rdict

db = Rdict(sys.argv[1] + "/db")
db.put_entity("k", ["x", "y"], [1, 2])
db["plain"] = 5
seen = db.get_entity("k"), db.get("k"), dict(db.items())["k"], db.get_entity("plain")
print(f"get_entity {seen[0]}, get {seen[1]!r}, items {seen[2]!r}; get_entity of a plain value {seen[3]}")
sys.exit(seen != ([("x", 1), ("y", 2)], "", "", [("", 5)]))
PYTHON
