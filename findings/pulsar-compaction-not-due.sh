#!/usr/bin/env bash
# Pulsar 4.0.8: compaction keeps the value that is not due yet, and drops the one that is.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends "now" and then "in an hour", delayed by an hour, of the same key; compacts; reads the compacted topic.
# Expected: "now", until the hour is over.
# Seen:    "in an hour", at once.
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

import pulsar
from broker import connect, new_topic, path, received, rest_until

topic = new_topic()
client = connect()
producer = client.create_producer(topic, batching_enabled=False)
producer.send(b"now", partition_key="key")
producer.send(b"in an hour", partition_key="key", deliver_after=timedelta(hours=1))
rest_until("PUT", path(topic) + "/compaction")
while rest_until("GET", path(topic) + "/compaction")["status"] not in ("SUCCESS", "ERROR"):
    time.sleep(0.5)
consumer = client.subscribe(
    topic, "reader", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
)
came = [text for text, _ in received(consumer, 10)]
client.close()
print(came)
sys.exit(came != ["in an hour"])
PYTHON
