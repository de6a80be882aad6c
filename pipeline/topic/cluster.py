"""A Pulsar cluster: its addresses, its credentials, and the way its entries are read.

Needs no package of the extras, so that ``--help`` works without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.pipeline.topic.access import Access


class ReadFrom(StrEnum):
    """The way of reading entries."""

    AUTO = "auto"
    BOOKIES = "bookies"
    BROKER = "broker"


@dataclass(frozen=True)
class Cluster:
    """A Pulsar cluster's addresses and credentials. Holds no secret, so that it may travel to workers.

    bookies: addresses of bookies that are not reachable under their own ids.
    """

    service_url: str
    admin_url: str
    access: Access = field(default_factory=Access)
    read_from: ReadFrom = ReadFrom.AUTO
    bookies: Mapping[str, str] = field(default_factory=dict)
