"""The three delayed delivery trackers that a broker can be configured with.

Everything but the tracker is the same for the three: distribution, conf, heap, ports, clients, data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.plugin.local.trackers import BUCKET_FACTORY, IN_MEMORY_FACTORY, TIDEGATE_FACTORY

OURS = "tidegate"
IN_MEMORY = "in-memory"
BUCKET = "bucket"
BUCKET_SEALED = "bucket, sealed"


@dataclass(frozen=True)
class TrackerPeer:
    """A tracker by its short name, the factory class that makes it, and whether it needs our daemon.

    ``conf`` holds keys of the broker's conf file that this peer needs beyond the common ones.
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
        # A bucket is sealed and stored when its ledger ends; by default a ledger lives ten minutes at
        # least, so that a bench of a minute would never see a snapshot. This peer gets them.
        TrackerPeer(BUCKET_SEALED, BUCKET_FACTORY, conf={"managedLedgerMinLedgerRolloverTimeMinutes": "0"}),
    )
}
