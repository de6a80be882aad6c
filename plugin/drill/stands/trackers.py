"""The tracker of a stand's broker, by the names of ``--compare``."""

from __future__ import annotations

from pathlib import Path

from tidegate.plugin.local.trackers import (
    BUCKET_FACTORY,
    FACTORY_KEY,
    IN_MEMORY_FACTORY,
    STRICT,
    tidegate_conf,
)

OURS = "tidegate"
NO_INDEX_LOG = "no-index-log"
"""Ours on a cluster as ``tidegate attach --index-log none`` leaves it."""
FACTORIES = {"in-memory": IN_MEMORY_FACTORY, "bucket": BUCKET_FACTORY}
_STRICT = {f"{name}-strict": factory for name, factory in FACTORIES.items()}
COMPARED = (*FACTORIES, NO_INDEX_LOG)
TITLES = {
    OURS: "Tidegate",
    NO_INDEX_LOG: "Tidegate without index log",
    "own": "your cluster",
    "in-memory": "Pulsar's in-memory tracker",
    "bucket": "Pulsar's Bucket tracker",
}

# Pulsar's defaults except for these keys, the same for all trackers. (`tidegate attach --tune-acks` would
# hide which acknowledgements a tracker recovers by itself.)
_CONF = {
    "brokerDeleteInactiveTopicsEnabled": "false",
    "brokerShutdownTimeoutMs": "5000",
}


def is_ours(tracker: str) -> bool:
    """True for Tidegate's, which has daemons beside the brokers."""
    return tracker in {OURS, NO_INDEX_LOG}


def broker_conf(tracker: str, socket_path: Path, *, several: bool = False) -> dict[str, str]:
    """The keys of the broker's conf file for the tracker; ``several``: it is one of several brokers.

    Ours then keeps index logs, as on an attached cluster.
    """
    if tracker in _STRICT:
        return _CONF | {FACTORY_KEY: _STRICT[tracker]} | STRICT
    if not is_ours(tracker):
        return _CONF | {FACTORY_KEY: FACTORIES[tracker]}
    index_log = {"tidegateIndexLog": "bookkeeper"} if several and tracker == OURS else {}
    return _CONF | tidegate_conf(socket_path) | index_log
