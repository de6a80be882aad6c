#!/usr/bin/env bash
# pyroaring 1.2.0: sum_value of get_statistics() is 0, whatever is in the bitmap.
#
# Does:    asks a BitMap of 0 … 9 for its statistics, and a BitMap64.
# Expected: 45, as the field's name says, or no such field.
# Seen:    0, beside right values for cardinality, min_value and max_value.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from pyroaring import BitMap, BitMap64

seen = [kind(range(10)).get_statistics() for kind in (BitMap, BitMap64)]
told = [(one["sum_value"], one["cardinality"], one["max_value"]) for one in seen if "sum_value" in one]
print(f"(sum_value, cardinality, max_value): {told}")
sys.exit(not told or any(one != (0, 10, 9) for one in told))
PYTHON
