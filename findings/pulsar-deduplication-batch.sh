#!/usr/bin/env bash
# Pulsar 4.0.8 with pulsar-client 3.13.0: deduplication drops an open batch that a delayed message overtakes, with Ok.
#
# Needs:   Java 17, Maven, curl.
# Does:    enables deduplication for a topic; a batching producer sends three messages and then a delayed one.
# Expected: four messages stored, as four sends are answered with Ok.
# Seen:    four times Ok, and only the delayed message arrives: it is sent at once, by itself and with the highest
#          sequence number, so that the batch behind it has numbers that were seen already. Its ids are (-1,-1).
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

from broker import SHARED, connect, new_topic, path, received, rest_until

topic = new_topic()
client = connect()
client.create_producer(topic).close()
rest_until("POST", path(topic) + "/deduplicationEnabled", True)
while rest_until("GET", path(topic) + "/deduplicationEnabled?applied=true") is not True:
    time.sleep(0.5)
time.sleep(5)
consumer = client.subscribe(topic, "s", consumer_type=SHARED)
producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=3000)
answers = []
for number in range(3):
    producer.send_async(f"plain {number}".encode(), lambda result, _: answers.append(str(result)))
producer.send_async(
    b"delayed", lambda result, _: answers.append(str(result)), deliver_after=timedelta(milliseconds=500)
)
producer.flush()
came = sorted(text for text, _ in received(consumer, 15))
client.close()
print(f"answers {answers}, received {came}")
sys.exit(answers != ["Result.Ok"] * 4 or came != ["delayed"])
PYTHON
