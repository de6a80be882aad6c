#!/usr/bin/env bash
# python-debian 1.1.1: equal versions have unequal hashes, so that a set keeps both.
#
# Does:    compares the versions 1.0 and 1.0-0, and 1 and 0:1, their hashes, and puts each pair into a set.
# Expected: one member a set: Python asks of objects that compare equal to have the same hash.
# Seen:    each pair is equal; the hashes differ, and each set has two members.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check python-debian==1.1.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from debian.debian_support import NativeVersion

pairs = [(NativeVersion(one), NativeVersion(other)) for one, other in (("1.0", "1.0-0"), ("1", "0:1"))]
seen = [(one == other, hash(one) == hash(other), len({one, other})) for one, other in pairs]
print(f"(equal, equal hashes, members of the set): {seen}")
sys.exit(seen != [(True, False, 2)] * 2)
PYTHON
