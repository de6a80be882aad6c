#!/usr/bin/env bash
# Pulsar 4.0.8: a topic whose delayed-delivery policy has a tick of 10 s gets messages up to 10 s early.
#
# Needs:   Java 17, Maven, curl.
# Does:    sets {"active": true, "tickTime": 10000} as the topic's policy and sends 12 messages, due one every 0.7 s
#          from 12 s on.
# Expected: a coarser tick makes messages later by up to 10 s, never earlier: deliver_at is "not before".
# Seen:    most come early, by seconds. (isDelayedDeliveryDeliverAtTimeStrict=true of the broker prevents it; false is
#          the default.)
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
producer = client.create_producer(topic)
rest_until("POST", path(topic) + "/delayedDelivery", {"active": True, "tickTime": 10_000})
while (rest_until("GET", path(topic) + "/delayedDelivery?applied=true") or {}).get("tickTime") != 10_000:
    time.sleep(0.5)
consumer = client.subscribe(topic, "s", consumer_type=SHARED)
for number in range(12):
    deliver_at_ms = time.time_ns() // 1_000_000 + 12_000 + 700 * number
    producer.send(str(deliver_at_ms).encode(), deliver_at=deliver_at_ms)
early_ms = [int(text) - at_ms for text, at_ms in received(consumer, 60, 12)]
client.close()
print(f"ms early: {early_ms}")
sys.exit(len(early_ms) != 12 or max(early_ms) < 1500)
PYTHON
