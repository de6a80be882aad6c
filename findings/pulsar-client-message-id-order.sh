#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a MessageId prints its partition third and takes it first.
#
# Does:    prints pulsar.MessageId(1, 2, 3, 4), then makes one of the four numbers as printed.
# Expected: the same id.
# Seen:    (2,3,1,4), ledger, entry, partition, batch index; made of these in turn it is ledger 3, entry 1, partition 2.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import pulsar

one = pulsar.MessageId(1, 2, 3, 4)
text = str(one)
again = pulsar.MessageId(*map(int, text.strip("()").split(",")))
print(f"MessageId(1, 2, 3, 4) prints {text}; of these: ledger {again.ledger_id()}, partition {again.partition()}")
sys.exit((text, again.ledger_id(), again.partition(), again == one) != ("(2,3,1,4)", 3, 2, False))
PYTHON
