"""The peers by name, in the order of the tables, for the bench and the worker.

A peer's module is imported on request: no peer pays for another's imports or misses another's packages.
"""

from __future__ import annotations

from importlib import import_module

from bench.harness.errors import BenchError
from bench.peers.base import Peer
from bench.peers.launch import Launcher, PythonLauncher

_CLASSES = {
    "tidegate": "bench.peers.ours:TidegatePeer",
    "redis": "bench.peers.redis_client:RedisPeer",
    "postgresql": "bench.peers.postgresql_client:PostgresqlPeer",
    "rocksdb": "bench.peers.rocks:RocksPeer",
    "qmq": "bench.peers.qmq:QmqPeer",
    "wheel-file": "bench.peers.wheel_file:WheelFilePeer",
    "levels": "bench.peers.levels:LevelsPeer",
    "heapq": "bench.peers.heaps:HeapqPeer",
    "heapdict": "bench.peers.heaps:HeapdictPeer",
}
"""Peers that `bench.peers.worker` runs: module and class, a `Peer`."""

_LAUNCHERS = {
    "in-memory": "bench.peers.pulsar_trackers:InMemoryLauncher",
    "bucket": "bench.peers.pulsar_trackers:BucketLauncher",
    "redis": "bench.peers.redis_server:RedisLauncher",
    "postgresql": "bench.peers.postgresql_server:PostgresqlLauncher",
}
"""Peers with a launcher of their own: module and class, a `Launcher` made without arguments."""

NAMES = (
    "tidegate",
    "in-memory",
    "bucket",
    "redis",
    "postgresql",
    "rocksdb",
    "qmq",
    "wheel-file",
    "levels",
    "heapq",
    "heapdict",
)
"""All of them, in the order of the tables."""


def peer_class(name: str) -> type[Peer]:
    """The class of a peer that runs in `bench.peers.worker`; raises BenchError with a list of the names."""
    if name not in _CLASSES:
        raise BenchError(f"no peer {name!r}; there are {', '.join(_CLASSES)}")
    module, _, attribute = _CLASSES[name].partition(":")
    found: type[Peer] = getattr(import_module(module), attribute)
    return found


def launcher(name: str) -> Launcher:
    """The launcher of a peer's processes; raises BenchError for an unknown name."""
    if name not in _LAUNCHERS:
        return PythonLauncher(peer_class(name).info)
    module, _, attribute = _LAUNCHERS[name].partition(":")
    made: Launcher = getattr(import_module(module), attribute)()
    return made
