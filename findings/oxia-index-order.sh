#!/usr/bin/env bash
# oxia 0.2.1 (Python): over two shards, a secondary index gives the wrong order, and the wrong record.
#
# Does:    reads three records by the index "due", with range_scan(), list(), and get() of the last one before 99. A
#          stand-in for the servers in the same process has the records m, z and a, due at 01, 05 and 09, z alone in its
#          shard, and sends those of a shard in order of the index, with their key in it, as the protocol has it.
# Expected: m, z, a, in order of the index asked for, and a, as a single shard gives.
# Seen:    m, a, z; a, m, z; and z, due at 05: what the shards send is merged by the records' keys, not by the index's.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check oxia==0.2.1 betterproto2==0.9.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from concurrent import futures

import grpc
from oxia import Client, ComparisonType
from oxia.internal.proto.io.streamnative.oxia import proto

SHARDS = [[("z", "05")], [("m", "01"), ("a", "09")]]
SERVICE = "io.streamnative.oxia.proto.OxiaClient"


def assignments(request, context):
    shards = []
    for shard, least in enumerate((0, 2**31)):
        hashes = proto.Int32HashRange(min_hash_inclusive=least, max_hash_inclusive=least + 2**31 - 1)
        shards.append(proto.ShardAssignment(shard=shard, leader=address, int32_hash_range=hashes))
    all_shards = proto.NamespaceShardsAssignment(assignments=shards, shard_key_router=proto.ShardKeyRouter.XXHASH3)
    yield proto.ShardAssignments(namespaces={"default": all_shards})
    while context.is_active():
        ended.result()


def record(key, due):
    return proto.GetResponse(key=key, value=due.encode(), version=proto.Version(), secondary_index_key=due)


def read(request, context):
    yield proto.ReadResponse(gets=[record(*SHARDS[request.shard][-1])])


def keys(request, context):
    yield proto.ListResponse(keys=[key for key, _ in SHARDS[request.shard]])


def scan(request, context):
    yield proto.RangeScanResponse(records=[record(*one) for one in SHARDS[request.shard]])


def handler(answer, request):
    return grpc.unary_stream_rpc_method_handler(answer, request.FromString, lambda message: message.SerializeToString())


ended = futures.Future()
server = grpc.server(futures.ThreadPoolExecutor())
methods = {
    "GetShardAssignments": handler(assignments, proto.ShardAssignmentsRequest),
    "Read": handler(read, proto.ReadRequest),
    "List": handler(keys, proto.ListRequest),
    "RangeScan": handler(scan, proto.RangeScanRequest),
}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
client = Client(address)
scanned = [key for key, _, _ in client.range_scan("00", "99", use_index="due")]
listed = client.list("00", "99", use_index="due")
last = client.get("99", comparison_type=ComparisonType.LOWER, use_index="due")[:2]
print(f"range_scan {scanned}, list {listed}, last before 99 {last}")
client.close()
ended.set_result(None)
server.stop(1).wait()
sys.exit((scanned, listed, last) != (["m", "a", "z"], ["a", "m", "z"], ("z", b"05")))
PYTHON
