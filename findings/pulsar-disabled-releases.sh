#!/usr/bin/env bash
# Pulsar 4.0.8: disabling delayed delivery of a topic gives out what waits at the next unload, an hour early.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends a message due in an hour, disables delayed delivery by the topic's policy, waits, unloads the topic.
# Expected: what was promised for later stays for later, or comes at once when it is disabled: the same before and after
#          an unload.
# Seen:    nothing comes when it is disabled; the message comes as soon as the topic is unloaded.
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

from broker import SHARED, connect, new_topic, path, received, rest_until

topic = new_topic()
client = connect()
consumer = client.subscribe(topic, "s", consumer_type=SHARED)
client.create_producer(topic).send(b"in an hour", deliver_at=time.time_ns() // 1_000_000 + 3_600_000)
rest_until("POST", path(topic) + "/delayedDelivery", {"active": False, "tickTime": 1000})
before = [text for text, _ in received(consumer, 10)]
rest_until("PUT", path(topic) + "/unload")
after = [text for text, _ in received(consumer, 60, 1)]
client.close()
print(f"disabled: {before}, unloaded: {after}")
sys.exit((before, after) != ([], ["in an hour"]))
PYTHON
