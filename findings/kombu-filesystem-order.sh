#!/usr/bin/env bash
# kombu 5.7.0: the filesystem transport mixes up messages that one producer sends within a millisecond.
#
# Does:    puts the numbers 0 to 299 into a SimpleQueue and gets them back, over memory:// and over filesystem://.
# Expected: the order in which they were put: its docs call SimpleQueue "only slightly different" from Python's Queue,
#          and other transports keep it.
# Seen:    order over memory://; over filesystem:// neighbours change places, for the name of a message's file is the
#          time in ms and then a random id, and files are read in order of their names.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check kombu==5.7.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import os
import sys

from kombu import Connection

folders = {name: f"{sys.argv[1]}/{name}" for name in ("messages", "control")}
for folder in folders.values():
    os.mkdir(folder)
on_disk = {
    "data_folder_in": folders["messages"],
    "data_folder_out": folders["messages"],
    "control_folder": folders["control"],
}
sent = list(range(300))
got = {}
for url, options in (("memory://", {}), ("filesystem://", on_disk)):
    with Connection(url, transport_options=options) as connection:
        queue = connection.SimpleQueue("times")
        for number in sent:
            queue.put(number)
        got[url] = []
        for _ in sent:
            message = queue.get(block=False)
            message.ack()
            got[url].append(message.payload)
        queue.close()
for url, numbers in got.items():
    late = sum(1 for before, after in zip(numbers, numbers[1:], strict=False) if after < before)
    print(f"{url}: {numbers[:12]}…, {late} of {len(numbers)} after a later one")
sys.exit(got["memory://"] != sent or got["filesystem://"] == sent or sorted(got["filesystem://"]) != sent)
PYTHON
