#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a Record takes arguments that it has no field for, and drops them.
#
# Does:    makes a Record with the one field amount by Order(amuont=5), and by Order(5).
# Expected: TypeError, as of any class; `order.amuont = 5` is refused.
# Seen:    both are made, with amount None: an unknown name is passed over, and a value without a name becomes the
#          default that the record would have as a field of another one.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from pulsar.schema import Integer, Record


class Order(Record):
    amount = Integer()


seen = Order(amuont=5).amount, Order(5).amount
try:
    Order().amuont = 5
    refused = False
except AttributeError:
    refused = True
print(f"Order(amuont=5).amount = {seen[0]}, Order(5).amount = {seen[1]}; setting an unknown name is refused: {refused}")
sys.exit(seen != (None, None) or not refused)
PYTHON
