#!/usr/bin/env bash
# oxia 0.2.1 (Python): a client learns of one change of the shards, and of none after it.
#
# Does:    has a stand-in for a server, in the same process, send first one shard, then two, then three, each time with
#          the hashes that each has; lists all keys five times in two seconds, and looks which shards the client asks.
# Expected: all three in the end: the stream of assignments brings "the client up to date", also after a split.
# Seen:    the first two for ever: the list lacks the keys of the third one, without an error. The thread that reads the
#          stream waits at a barrier for another one after each change, and one comes for the first alone.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check oxia==0.2.1 betterproto2==0.9.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time
from concurrent import futures

import grpc
from oxia import Client
from oxia.internal.proto.io.streamnative.oxia import proto

SERVICE = "io.streamnative.oxia.proto.OxiaClient"
asked, sent = set(), []


def assignments(request, context):
    for number in (1, 2, 3):
        shards = []
        for shard in range(number):
            least, most = (2**32 * edge // number for edge in (shard, shard + 1))
            hashes = proto.Int32HashRange(min_hash_inclusive=least, max_hash_inclusive=most - 1)
            shards.append(proto.ShardAssignment(shard=shard, leader=address, int32_hash_range=hashes))
        now = proto.NamespaceShardsAssignment(assignments=shards, shard_key_router=proto.ShardKeyRouter.XXHASH3)
        yield proto.ShardAssignments(namespaces={"default": now})
        sent.append(number)
    ended.result()


def keys(request, context):
    asked.add(request.shard)
    yield proto.ListResponse(keys=[f"key-of-{request.shard}"])


def handler(answer, request):
    return grpc.unary_stream_rpc_method_handler(answer, request.FromString, lambda message: message.SerializeToString())


ended = futures.Future()
server = grpc.server(futures.ThreadPoolExecutor())
methods = {
    "GetShardAssignments": handler(assignments, proto.ShardAssignmentsRequest),
    "List": handler(keys, proto.ListRequest),
}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
client = Client(address)
for _ in range(5):
    time.sleep(0.4)
    listed = client.list("", "z")
print(f"shards sent: {sent}, asked: {sorted(asked)}, listed at last: {listed}")
ended.set_result(None)
server.stop(1).wait()
sys.exit(sent != [1, 2, 3] or asked != {0, 1} or listed != ["key-of-0", "key-of-1"])
PYTHON
