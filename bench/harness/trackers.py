"""The three delayed delivery trackers of a broker, Pulsar's own also in other settings.

All else is the same for each: distribution, conf, heap, ports, clients, data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.plugin.local.trackers import BUCKET_FACTORY, IN_MEMORY_FACTORY, STRICT, TIDEGATE_FACTORY

OURS = "tidegate"
IN_MEMORY = "in-memory"
BUCKET = "bucket"
BUCKET_SEALED = "bucket, sealed"
IN_MEMORY_STRICT, BUCKET_STRICT = "in-memory, strict", "bucket, strict"


@dataclass(frozen=True)
class TrackerPeer:
    """A tracker by its short name, with its factory class and its need of our daemon.

    ``conf`` has further keys of the broker's conf file.
    """

    name: str
    factory: str
    needs_daemon: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


TRACKERS: dict[str, TrackerPeer] = {
    peer.name: peer
    for peer in (
        TrackerPeer(OURS, TIDEGATE_FACTORY, needs_daemon=True),
        TrackerPeer(IN_MEMORY, IN_MEMORY_FACTORY),
        TrackerPeer(BUCKET, BUCKET_FACTORY),
        TrackerPeer(IN_MEMORY_STRICT, IN_MEMORY_FACTORY, conf=STRICT),
        TrackerPeer(BUCKET_STRICT, BUCKET_FACTORY, conf=STRICT),
        # A bucket is sealed and stored when its ledger ends, by default after ten minutes: too late for this
        # bench. This peer gets snapshots.
        TrackerPeer(BUCKET_SEALED, BUCKET_FACTORY, conf={"managedLedgerMinLedgerRolloverTimeMinutes": "0"}),
    )
}
