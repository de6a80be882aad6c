"""The benches by name, in the order of ``python -m bench list``."""

from __future__ import annotations

from bench.benches import (
    acks,
    add,
    bounds,
    failover,
    index,
    lateness,
    libraries,
    peers,
    profile,
    scale,
    throughput,
    tuning,
)
from bench.driver import Bench
from bench.errors import BenchError

BENCHES: dict[str, Bench] = {
    module.BENCH.name: module.BENCH
    for module in (
        add,
        lateness,
        throughput,
        failover,
        acks,
        index,
        scale,
        peers,
        profile,
        bounds,
        libraries,
        tuning,
    )
}


def find(name: str) -> Bench:
    """The bench of that name; raises BenchError that lists the names."""
    try:
        return BENCHES[name]
    except KeyError:
        raise BenchError(f"no bench {name!r}; there are {', '.join(BENCHES)}") from None
