#!/usr/bin/env bash
# sortedcollections 2.1.0: | of a ValueSortedDict or an ItemSortedDict with a dictionary raises; update() works.
#
# Does:    merges a dictionary into each kind of sorted dictionary, by | and by update() of a copy.
# Expected: the same entries both ways, as with the SortedDict that they extend, with NearestDict and with dict.
# Seen:    KeyError and TypeError from |: it hands the inner function for the order to the constructor, where the
#          caller's is meant.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check sortedcollections==2.1.0 sortedcontainers==2.4.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from sortedcollections import ItemSortedDict, NearestDict, ValueSortedDict
from sortedcontainers import SortedDict

kinds = (
    SortedDict({1: 5}),
    NearestDict({1: 5}),
    ValueSortedDict({1: 5}),
    ItemSortedDict(lambda key, value: value, {1: 5}),
)


def union(mapping):
    try:
        return dict(mapping | {2: 4})
    except (KeyError, TypeError) as error:
        return type(error).__name__


def updated(mapping):
    mapping.update({2: 4})
    return dict(mapping)


seen = {type(mapping).__name__: (union(mapping), updated(mapping)) for mapping in kinds}
for kind, (by_union, by_update) in seen.items():
    print(f"{kind}: | {by_union}, update() {by_update}")
both = {1: 5, 2: 4}
expected = {"SortedDict": both, "NearestDict": both, "ValueSortedDict": "KeyError", "ItemSortedDict": "TypeError"}
sys.exit(seen != {kind: (by_union, both) for kind, by_union in expected.items()})
PYTHON
