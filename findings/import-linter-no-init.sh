#!/usr/bin/env bash
# import-linter 2.16 with grimp 3.19: modules in a folder without __init__.py are not looked at, and contracts are kept.
#
# Does:    checks the layers high and low of a package in which low/plain/worse.py imports high, once without and once
#          with an __init__.py in low/plain. Python imports the module either way.
# Expected: the contract broken both times, or a warning about files that were left out.
# Seen:    without __init__.py "Contracts: 1 kept, 0 broken." and exit code 0; with it the contract is broken.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check import-linter==2.16 grimp==3.19
cd "$dir"
mkdir -p app/high app/low/plain
touch app/__init__.py app/high/__init__.py app/low/__init__.py
echo 'import app.high' >app/low/plain/worse.py
cat >.importlinter <<'INI'
[importlinter]
root_package = app

[importlinter:contract:layers]
name = layers
type = layers
layers =
    app.high
    app.low
INI
export PYTHONPATH=$dir
venv/bin/python -c 'import app.low.plain.worse'
check() {
    venv/bin/lint-imports --no-cache >"$1" 2>&1 && code=0 || code=$?
    echo "$1: exit code $code, $(grep '^Contracts:' "$1")"
}
seen=$(check without && touch app/low/plain/__init__.py && check with)
echo "$seen"
[ "$seen" = "without: exit code 0, Contracts: 1 kept, 0 broken.
with: exit code 1, Contracts: 0 kept, 1 broken." ] && ! grep -qi warn without
