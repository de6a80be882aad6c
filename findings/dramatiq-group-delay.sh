#!/usr/bin/env bash
# dramatiq 2.2.1: the delay of a message is kept in a pipeline, and dropped in a group and by broker.enqueue().
#
# Does:    makes messages with message_with_options(delay=500) and runs one in a pipeline, one in a group, one by
#          broker.enqueue(), over the StubBroker.
# Expected: half a second for all three: the options go "to the broker", send_with_options(delay=500) takes the same
#          one, and the pipeline keeps it.
# Seen:    500 ms in the pipeline, 0 ms in the group and by enqueue(), without a word.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check dramatiq==2.2.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

import dramatiq
from dramatiq.brokers.stub import StubBroker

broker = StubBroker()
dramatiq.set_broker(broker)
ran_s = {}


@dramatiq.actor
def note(way):
    ran_s[way] = time.monotonic()


worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
worker.start()
messages = {way: note.message_with_options(args=(way,), delay=500) for way in ("pipeline", "group", "enqueue")}
start_s = time.monotonic()
dramatiq.pipeline([messages["pipeline"]]).run()
dramatiq.group([messages["group"]]).run()
broker.enqueue(messages["enqueue"])
broker.join("default", timeout=30_000)
worker.stop()
waited_s = {way: ran_s[way] - start_s for way in messages}
print({way: f"{seconds:.1f} s" for way, seconds in waited_s.items()})
sys.exit(not (waited_s["pipeline"] >= 0.5 > 0.4 > max(waited_s["group"], waited_s["enqueue"])))
PYTHON
