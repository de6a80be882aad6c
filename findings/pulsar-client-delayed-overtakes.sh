#!/usr/bin/env bash
# pulsar-client 3.13.0 with Pulsar 4.0.8: a delayed message is stored before the open batch that was sent before it.
#
# Needs:   Java 17, Maven, curl.
# Does:    one producer with batching sends five messages, then a delayed one.
# Expected: stored in the order of sending: a producer's messages are.
# Seen:    the delayed one is entry 0, and the five are entry 1: it does not close the batch that is open. A consumer
#          that is Exclusive, to which delays mean nothing, gets it first.
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
from datetime import timedelta

from broker import connect, new_topic, received

topic = new_topic()
client = connect()
consumer = client.subscribe(topic, "s")
producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=3000)
stored = {}


def note(name):
    return lambda _, message_id: stored.__setitem__(name, message_id.entry_id())


for number in range(5):
    producer.send_async(f"plain {number}".encode(), note(f"plain {number}"))
producer.send_async(b"delayed", note("delayed"), deliver_after=timedelta(seconds=5))
producer.flush()
came = [text for text, _ in received(consumer, 20, 6)]
client.close()
print(f"entries {stored}; received {came}")
sys.exit(stored["delayed"] != 0 or {stored[f"plain {number}"] for number in range(5)} != {1} or came[0] != "delayed")
PYTHON
