#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): of deliver_at and deliver_after the first is dropped without a word.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends with deliver_at in ten minutes and deliver_after of one millisecond.
# Expected: an error, or the later of the two.
# Seen:    the message comes at once.
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

from broker import SHARED, connect, new_topic, received

topic = new_topic()
client = connect()
consumer = client.subscribe(topic, "s", consumer_type=SHARED)
producer = client.create_producer(topic)
in_ten_minutes_ms = time.time_ns() // 1_000_000 + 600_000
producer.send(b"both", deliver_at=in_ten_minutes_ms, deliver_after=timedelta(milliseconds=1))
producer.send(b"deliver_at", deliver_at=in_ten_minutes_ms)
came = [text for text, _ in received(consumer, 15)]
client.close()
print(f"received within 15 s: {came}")
sys.exit(came != ["both"])
PYTHON
