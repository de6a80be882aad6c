#!/usr/bin/env bash
# pulsar-client 3.13.0 with Pulsar 4.0.8: a chunked message that a reconnection cuts in two is dropped when it comes again.
#
# Needs:   Java 17, Maven, curl.
# Does:    the broker delivers a chunk a second of a message of six; the topic is unloaded in between, the consumer
#          reconnects by itself, and the broker delivers all chunks again; then the consumer asks for a redelivery.
# Expected: the message comes after the reconnection.
# Seen:    not within 20 s, though the broker has delivered it as a whole ("Received a chunk whose chunk id is
#          invalid"): the client keeps the former chunks, and drops all. The redelivery brings the message.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
. "$here/lib/standalone"
trap 'stop_broker; rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
start_broker maxMessageSize=10240
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/lib "$dir/venv/bin/python" - <<'PYTHON'
import sys
import time

from broker import SHARED, connect, new_topic, path, received, rest, rest_until

RATE = "namespaces/public/default/dispatchRate"
SLOW = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
topic = new_topic()
client = connect()
consumer = client.subscribe(topic, "s", consumer_type=SHARED)
producer = client.create_producer(topic, chunking_enabled=True)


def unacknowledged():
    return rest_until("GET", path(topic) + "/stats")["subscriptions"]["s"]["unackedMessages"]


rest("POST", RATE, SLOW)
producer.send(b"x" * 55_000)
while unacknowledged() < 2:
    time.sleep(0.1)
before = unacknowledged()
rest("DELETE", RATE)
rest("PUT", path(topic) + "/unload")
after = len(received(consumer, 20))
held = unacknowledged()
consumer.redeliver_unacknowledged_messages()
again = len(received(consumer, 20, 1))
client.close()
print(f"chunks delivered before the reconnection {before}, after it {held}; messages then {after}, redelivered {again}")
sys.exit(not (2 <= before < held == 6 and (after, again) == (0, 1)))
PYTHON
