"""Ledgers in tiered storage: Pulsar's own offloader for file systems, from its distribution.

Fetched once, as the server is, and not by `tidegate setup`: only tests need it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.admin import Admin, Json
from tests.support.waiting import wait_until
from tidegate.plugin.local.distribution import Distribution, default_cache_dir, fetch

OFFLOADERS = Distribution(
    group="org.apache.pulsar",
    artifact="pulsar-offloader-distribution",
    version="4.0.8",
    classifier="bin",
    sha256="a73d8c48f578edbc572147351fbca742740b3fe4329f892ce80f3de717adf6c7",
    size_bytes=62_028_727,
    unpacked_bytes=62_100_000,
    directory_name="apache-pulsar-offloaders-4.0.8",
)


def policies(storage: Path) -> Json:
    """Offload policies of a namespace: what is offloaded goes to ``storage``, and from BookKeeper at once.

    Nothing is offloaded before it is asked for.
    """
    home = fetch(default_cache_dir(os.environ), os.environ, distribution=OFFLOADERS)
    return {
        "offloadersDirectory": str(home / "offloaders"),
        "managedLedgerOffloadDriver": "filesystem",
        "managedLedgerOffloadMaxThreads": 2,
        "managedLedgerOffloadDeletionLagInMillis": 0,
        "fileSystemURI": storage.as_uri(),
    }


def offload(admin: Admin, topic: str, before: int) -> None:
    """Offload the topic's ledgers up to that one, without it; returns once that is done."""
    path = f"/persistent/{topic}/offload"
    admin.call("PUT", path, {"ledgerId": before, "entryId": 0, "partitionIndex": -1})

    def done() -> bool:
        status = admin.call("GET", path)
        assert status["status"] != "ERROR", status["lastError"]
        return bool(status["status"] == "SUCCESS")

    wait_until(done, f"the ledgers before {before} are offloaded")
