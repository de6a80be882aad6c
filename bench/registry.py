"""The benches by name, in the order of ``python -m bench list``."""

from __future__ import annotations

from bench import acks, add, failover, lateness
from bench.bounds import bench as bounds
from bench.cost import bench as cost
from bench.daemon import bench as daemon
from bench.harness.driver import Bench
from bench.harness.errors import BenchError
from bench.index import bench as index
from bench.journal import bench as journal
from bench.libraries import bench as libraries
from bench.peers import bench as peers
from bench.profile import bench as profile
from bench.readahead import bench as readahead
from bench.rebuild import bench as rebuild
from bench.scale import bench as scale
from bench.takeover import bench as takeover
from bench.throughput import bench as throughput
from bench.tuning import bench as tuning
from bench.waiting import bench as waiting

BENCHES: dict[str, Bench] = {
    module.BENCH.name: module.BENCH
    for module in (
        add,
        lateness,
        throughput,
        cost,
        failover,
        takeover,
        readahead,
        acks,
        index,
        scale,
        daemon,
        peers,
        profile,
        bounds,
        journal,
        libraries,
        tuning,
        rebuild,
        waiting,
    )
}


def find(name: str) -> Bench:
    """The bench of that name; raises BenchError with a list of the names."""
    try:
        return BENCHES[name]
    except KeyError:
        raise BenchError(f"no bench {name!r}; there are {', '.join(BENCHES)}") from None
