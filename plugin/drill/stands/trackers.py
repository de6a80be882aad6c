"""Whose tracker a stand's broker runs, by the names that ``--compare`` takes."""

from __future__ import annotations

from pathlib import Path

from tidegate.plugin.local.trackers import BUCKET_FACTORY, FACTORY_KEY, IN_MEMORY_FACTORY, tidegate_conf

OURS = "tidegate"
FACTORIES = {"in-memory": IN_MEMORY_FACTORY, "bucket": BUCKET_FACTORY}
TITLES = {
    OURS: "Tidegate",
    "own": "your cluster",
    "in-memory": "Pulsar's in-memory tracker",
    "bucket": "Pulsar's Bucket tracker",
}

# Pulsar's defaults but for these, the same for all trackers. (What `tidegate attach --tune-acks` sets would
# hide which acknowledgements a tracker gets back by itself.)
_CONF = {
    "brokerDeleteInactiveTopicsEnabled": "false",
    "brokerShutdownTimeoutMs": "5000",
}


def broker_conf(tracker: str, socket_path: Path) -> dict[str, str]:
    """The keys of the broker's conf file for the tracker."""
    own = tidegate_conf(socket_path) if tracker == OURS else {FACTORY_KEY: FACTORIES[tracker]}
    return _CONF | own
