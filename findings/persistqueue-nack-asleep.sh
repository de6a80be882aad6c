#!/usr/bin/env bash
# persist-queue 1.1.0: nack() of a SQLiteAckQueue wakes no consumer; put() does.
#
# Does:    lets a thread wait in get(timeout=4) while another one gives an item back with nack() after 0.2 s, then the
#          same with put().
# Expected: the waiting thread gets the item at once: nack() is to mark it for retry, and get() is to wait for an item.
# Seen:    it gets it after 4 s, once the timeout is over, though the item was ready long before (without a timeout,
#          after up to 10 s); with put() after 0.2 s.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check persist-queue==1.1.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import threading
import time

from persistqueue import SQLiteAckQueue


def waited(method):
    queue = SQLiteAckQueue(f"{sys.argv[1]}/{method}", multithreading=True)
    queue.put("item")
    item = queue.get()
    start = time.monotonic()
    timer = threading.Timer(0.2, getattr(queue, method), [item])
    timer.start()
    got = queue.get(timeout=4)
    timer.join()
    return got, time.monotonic() - start


seen = {method: waited(method) for method in ("put", "nack")}
print({method: f"{got} after {seconds:.1f} s" for method, (got, seconds) in seen.items()})
sys.exit(not (seen["put"][1] < 2 and seen["nack"][1] > 3.5 and {got for got, _ in seen.values()} == {"item"}))
PYTHON
