#!/usr/bin/env bash
# Pulsar 4.0.8: deliverAfterMs of a message sent by REST counts from 1970, unless the message has an eventTime.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends by REST one message with deliverAfterMs 600,000, and one with that and the time now as eventTime.
# Expected: neither comes within ten minutes.
# Seen:    the first one comes at once; the second one waits.
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
after = {"payload": "plain", "deliverAfterMs": 600_000}
with_time = {"payload": "with eventTime", "deliverAfterMs": 600_000, "eventTime": time.time_ns() // 1_000_000}
for message in (after, with_time):
    rest_until("POST", "/topics/" + path(topic), {"producerName": "rest", "messages": [message]})
came = [text for text, _ in received(consumer, 15)]
stored = rest_until("GET", path(topic) + "/internalStats")["numberOfEntries"]
client.close()
print(f"stored {stored}, received {came}")
sys.exit(stored != 2 or came != ["plain"])
PYTHON
