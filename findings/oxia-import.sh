#!/usr/bin/env bash
# oxia 0.2.1 (Python) with betterproto2 0.10.0: a client whose requirements are met cannot be imported.
#
# Does:    installs oxia beside betterproto2 0.10.0, asks pip whether all requirements are met, and imports oxia; does
#          the same with betterproto2 0.9.1.
# Expected: an import that works whenever pip is content.
# Seen:    ImportError with 0.10.0, which pip takes by itself, none with 0.9.1: oxia requires a betterproto2-compiler of
#          any version, while its generated modules allow 0.9 alone.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
seen=""
for version in 0.10.0 0.9.1; do
    "$dir/venv/bin/pip" install -q --disable-pip-version-check oxia==0.2.1 "betterproto2==$version"
    checked=$("$dir/venv/bin/pip" check --disable-pip-version-check)
    if "$dir/venv/bin/python" -c 'import oxia' 2>"$dir/error"; then
        imported=imported
    else
        imported=$(grep -o '^ImportError' "$dir/error")
    fi
    seen="$seen$version: $checked $imported
"
done
echo "$seen"
[ "$seen" = "0.10.0: No broken requirements found. ImportError
0.9.1: No broken requirements found. imported
" ]
