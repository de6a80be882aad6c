"""The delayed delivery trackers that a broker can run, as keys of its conf file."""

from __future__ import annotations

from pathlib import Path

FACTORY_KEY = "delayedDeliveryTrackerFactoryClassName"
TIDEGATE_FACTORY = "tidegate.pulsar.TrackerFactory"
IN_MEMORY_FACTORY = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
BUCKET_FACTORY = "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
STRICT = {"isDelayedDeliveryDeliverAtTimeStrict": "true"}
"""Pulsar's own are never early with it; by default they are, by up to a tick."""


def tidegate_conf(socket_path: Path, **extra: str) -> dict[str, str]:
    """The conf keys that attach a broker to the daemon listening on ``socket_path``."""
    return {FACTORY_KEY: TIDEGATE_FACTORY, "tidegateSocket": str(socket_path), **extra}
