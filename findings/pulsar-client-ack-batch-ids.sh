#!/usr/bin/env bash
# pulsar-client 3.13.0 with Pulsar 4.0.8: a batch acknowledged message by message, by the ids that send gave, stays.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends three messages in one batch, acknowledges the three ids that the producer got; then does the same with
#          three more by the ids that the consumer got. The ids of both are equal (==).
# Expected: no backlog, both times.
# Seen:    one entry of backlog after the first, none after the second: a consumer's id knows of the rest of its
#          batch, a producer's, or one from bytes, does not; each acknowledgement waits for the others.
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

import pulsar
from broker import SHARED, connect, new_topic, path, rest_until


def backlog(topic):
    time.sleep(3)
    return rest_until("GET", path(topic) + "/stats")["subscriptions"]["s"]["msgBacklog"]


client = connect()
seen = []
for whose in ("producer", "consumer"):
    topic = new_topic()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    sent = []
    for number in range(3):
        producer.send_async(b"%d" % number, lambda _, message_id: sent.append(message_id))
    producer.flush()
    came = [consumer.receive(30_000).message_id() for _ in range(3)]
    for message_id in sent if whose == "producer" else came:
        consumer.acknowledge(message_id)
    seen.append((sent == came, {one.entry_id() for one in sent} == {0}, backlog(topic)))
client.close()
print(f"(equal ids, one entry, backlog): producer's ids {seen[0]}, consumer's {seen[1]}; client {pulsar.__version__}")
sys.exit(seen != [(True, True, 1), (True, True, 0)] and seen != [(True, True, 3), (True, True, 0)])
PYTHON
