#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): the id that send gave cannot be acknowledged if the topic has partitions.
#
# Needs:   Java 17, Maven, curl.
# Does:    sends a message to a topic of three partitions, acknowledges it by the producer's id, then by the consumer's.
# Expected: both work: the ids are equal (==), partition and all, and on a topic without partitions either does.
# Seen:    OperationNotSupported for the producer's, "MessageId without a topic name cannot be acknowledged".
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

import pulsar
from broker import SHARED, connect, new_topic, path, rest_until

client = connect()
seen = []
for partitions in (0, 3):
    topic = new_topic()
    if partitions:
        rest_until("PUT", path(topic) + "/partitions", partitions)
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    sent = client.create_producer(topic).send(b"one")
    came = consumer.receive(30_000).message_id()
    equal = sent == came
    for message_id in (sent, came):
        try:
            consumer.acknowledge(message_id)
            seen.append((partitions, equal, "acknowledged"))
        except pulsar.OperationNotSupported:
            seen.append((partitions, equal, "OperationNotSupported"))
client.close()
print(f"(partitions, equal ids, answer) by the producer's id and by the consumer's: {seen}")
sys.exit([one[2] for one in seen] != ["acknowledged", "acknowledged", "OperationNotSupported", "acknowledged"])
PYTHON
