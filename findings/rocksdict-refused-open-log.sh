#!/usr/bin/env bash
# rocksdict 0.3.29: an open that the lock refuses has replaced the LOG of the process that uses the database.
#
# Does:    one process keeps a database open; a second one opens it, which fails for the lock.
# Expected: a refused open leaves the directory as it was.
# Seen:    the file LOG is another one, of the refused process, and the first one's is LOG.old.NUMBER: there it goes on
#          writing. RocksDB begins its log, and reads files, before it takes the lock; the next refused open does it again.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
cat >"$dir/second.py" <<'PYTHON'
import sys

from rocksdict import Rdict

try:
    Rdict(sys.argv[1])
except Exception as error:
    print("lock" in str(error).lower())
PYTHON
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from rocksdict import Rdict

above = Path(sys.argv[1])
path = above / "db"
db = Rdict(str(path))
db["a"] = 1


def logs():
    return {each.stat().st_ino: each.name for each in path.iterdir() if each.name.startswith("LOG")}


before = logs()
(first,) = before
said = subprocess.run([sys.executable, above / "second.py", path], capture_output=True, text=True, check=True).stdout
after = logs()
size = (path / after[first]).stat().st_size
db.flush()
grown = (path / after[first]).stat().st_size > size
print(f"refused by the lock: {said.strip()}; the first process's log: {before[first]}, then", "LOG.old.NUMBER"
      if after[first].startswith("LOG.old.") else after[first], f"of {len(after)} logs; it goes on there: {grown}")
sys.exit(said.strip() != "True" or before[first] != "LOG" or not after[first].startswith("LOG.old.")
         or "LOG" not in after.values() or not grown)
PYTHON
