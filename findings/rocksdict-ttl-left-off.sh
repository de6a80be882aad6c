#!/usr/bin/env bash
# rocksdict 0.3.29: a database made with a time to live has other numbers when it is opened without.
#
# Does:    stores 5 with AccessType.with_ttl(3600), closes the database and opens it without.
# Expected: 5, or a refusal, as there is one where raw_mode differs.
# Seen:    a number of eleven digits, whose upper bytes are 5 and whose lower four are the time of writing: RocksDB
#          puts it behind each value, and rocksdict takes it as part of the int.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

from rocksdict import AccessType, Rdict

db = Rdict(sys.argv[1] + "/db", access_type=AccessType.with_ttl(3600))
db["n"] = 5
before = db["n"]
db.close()
after = Rdict(sys.argv[1] + "/db")["n"]
written_s = int.from_bytes((after & 0xFFFFFFFF).to_bytes(4, "big"), "little")
print(f"with it {before}, without it {after}: {after >> 32}, and {written_s} s since 1970")
sys.exit(before != 5 or after >> 32 != 5 or abs(written_s - time.time()) > 600)
PYTHON
