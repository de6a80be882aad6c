#!/usr/bin/env bash
# walrus 0.9.8: the empty slice [:0] of a sorted set or a list is all of it, and del due[:0] empties it.
#
# Does:    takes the slices [:2], [:1] and [:0] of a ZSet and of a List of five, and [:"a"] of the ZSet, whose first
#          member is a; deletes [:0] of the ZSet. A stand-in for Redis in the same process stores them.
# Expected: two, one and none, as of any slice in Python; up to "a" one member or none: the docstring has zs[:"k5"] as
#          "preceding and including", yet "b" gives one; and del takes none.
# Seen:    two, one and five; five up to "a"; the ZSet is empty. A program that removes the first n loses all at n=0.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check walrus==0.9.8 redis==8.1.0 fakeredis==2.41.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import fakeredis
import walrus

db = walrus.Database(connection_pool=fakeredis.FakeStrictRedis().connection_pool)
due, names = db.ZSet("due"), db.List("names")
due.add({name: score for score, name in enumerate("abcde")})
names.extend("abcde")
seen = {"ZSet": [len(due[:end]) for end in (2, 1, 0)], "List": [len(names[:end]) for end in (2, 1, 0)]}
by_name = [len(due[:end]) for end in ("b", "a")]
del due[:0]
print(f"[:2], [:1] and [:0]: {seen}; up to b and a: {by_name}; left after del due[:0]: {len(due)}")
sys.exit(seen != {"ZSet": [2, 1, 5], "List": [2, 1, 5]} or by_name != [1, 5] or len(due) != 0)
PYTHON
