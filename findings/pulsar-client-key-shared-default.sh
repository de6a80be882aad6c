#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a Key_Shared policy cannot be made of the mode, order and ranges of the default one.
#
# Does:    makes ConsumerKeySharedPolicy(), and another one of its key_shared_mode, allow_out_of_order_delivery and
#          sticky_ranges; the same of a sticky policy.
# Expected: two copies.
# Seen:    the sticky one is copied; sticky_ranges of the default one is [], which AutoSplit, though it uses no ranges,
#          refuses: "Ranges for KeyShared policy must not be empty." Only None will do.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - <<'PYTHON'
import sys

from pulsar import ConsumerKeySharedPolicy, KeySharedMode

seen = []
for policy in (
    ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 100)]),
    ConsumerKeySharedPolicy(),
):
    given = policy.key_shared_mode, policy.allow_out_of_order_delivery, policy.sticky_ranges
    try:
        seen.append(ConsumerKeySharedPolicy(*given).sticky_ranges)
    except ValueError as error:
        seen.append(str(error))
print(f"sticky {seen[0]}, default {seen[1]}")
sys.exit(seen != [[(0, 100)], "Ranges for KeyShared policy must not be empty."])
PYTHON
