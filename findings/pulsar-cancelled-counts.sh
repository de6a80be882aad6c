#!/usr/bin/env bash
# Pulsar 4.0.8: msgBacklogNoDelayed is negative once delayed messages were acknowledged before they are due.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends 100 messages delayed by an hour to a Shared subscription; acknowledges 50 of them by the ids that their
#          producer got, as people do to cancel; reads the subscription's statistics.
# Expected: msgDelayed 50, for 50 still wait; msgBacklogNoDelayed 0: nobody waits for a message that is not delayed.
# Seen:    msgBacklog 50, msgDelayed 100, msgBacklogNoDelayed -50.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
. "$here/lib/standalone"
trap 'stop_broker; rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
start_broker
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/lib "$dir/venv/bin/python" - <<'PYTHON'
import sys
import time
from datetime import timedelta

from broker import SHARED, connect, new_topic, path, rest_until

topic = new_topic()
client = connect()
consumer = client.subscribe(topic, "sub", consumer_type=SHARED)
producer = client.create_producer(topic, batching_enabled=False)
ids = [producer.send(b"later", deliver_after=timedelta(hours=1)) for _ in range(100)]


def counts() -> tuple[int, int, int]:
    one = rest_until("GET", path(topic) + "/stats")["subscriptions"]["sub"]
    return one["msgBacklog"], one["msgDelayed"], one["msgBacklogNoDelayed"]


def counts_of(backlog: int, delayed: int) -> tuple[int, int, int]:
    end_s = time.monotonic() + 30
    while (found := counts())[:2] != (backlog, delayed) and time.monotonic() < end_s:
        time.sleep(0.2)
    return found


before = counts_of(100, 100)
for one in ids[:50]:
    consumer.acknowledge(one)
after = counts_of(50, 100)
client.close()
print(before, after)
sys.exit((before, after) != ((100, 100, 0), (50, 100, -50)))
PYTHON
