"""The trackers that may delay the demo's messages, by the names of ``--tracker``."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.plugin.local.trackers import BUCKET_FACTORY, IN_MEMORY_FACTORY


@dataclass(frozen=True)
class TrackerChoice:
    """A tracker for the messages; without a ``factory`` it is Tidegate."""

    title: str
    factory: str | None = None


TRACKERS = {
    "tidegate": TrackerChoice("Tidegate"),
    "in-memory": TrackerChoice("Pulsar's in-memory tracker", IN_MEMORY_FACTORY),
    "bucket": TrackerChoice("Pulsar's Bucket tracker", BUCKET_FACTORY),
}
