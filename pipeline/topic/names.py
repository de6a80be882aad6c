"""Names of topics, as people write them and in the forms of the broker's two interfaces."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from tidegate.pipeline.errors import OptionError

_SCHEME = "persistent://"
SCALABLE = ("segment://", "topic://")
"""The beginnings of the names of Pulsar 5's scalable topics and their segments."""
_PARTITION = re.compile(r"-partition-(\d{1,9})$")
_NAME_MAX = 4_096
_PARTS = 3


class TopicName(NamedTuple):
    """A persistent topic, whole or one partition of it."""

    tenant: str
    namespace: str
    local: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """From ``persistent://tenant/namespace/name``, ``tenant/namespace/name`` or ``name``.

        Raises ``OptionError``.
        """
        if text.startswith("non-persistent://"):
            raise OptionError(f"{text}: a non-persistent topic keeps nothing that could be read")
        if text.startswith(SCALABLE):
            raise OptionError(
                f"{text[:80]}: only persistent:// topics can be read here, no scalable topic or segment; its "
                "broker fills the index when a consumer subscribes"
            )
        parts = text.removeprefix(_SCHEME).split("/", _PARTS - 1)
        if len(parts) == 1 and not text.startswith(_SCHEME):
            parts = ["public", "default", *parts]
        if len(parts) != _PARTS or not all(parts) or len(text) > _NAME_MAX or not text.isprintable():
            raise OptionError(f"{text[:80]!r} is no topic: write persistent://tenant/namespace/name")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{_SCHEME}{self.tenant}/{self.namespace}/{self.local}"

    @property
    def admin_path(self) -> str:
        """The topic's part of an admin URL."""
        return "/".join(quote(part, safe="") for part in self)

    @property
    def namespace_path(self) -> str:
        """The namespace's part of an admin URL."""
        return "/".join(quote(part, safe="") for part in self[:2])

    @property
    def partition(self) -> int:
        """The number of the partition, -1 for a whole topic."""
        found = _PARTITION.search(self.local)
        return int(found[1]) if found else -1

    @property
    def base(self) -> TopicName:
        """The whole topic."""
        return self._replace(local=_PARTITION.sub("", self.local))

    def partitions(self, count: int) -> list[TopicName]:
        """The topics of its partitions; the topic alone if it has none (``count`` 0)."""
        if count == 0:
            return [self]
        return [self._replace(local=f"{self.local}-partition-{number}") for number in range(count)]


def cursor_name(subscription: str) -> str:
    """The managed ledger's name for the cursor of ``subscription``: encoded as by Java's URLEncoder."""
    return quote_plus(subscription, safe="*").replace("~", "%7E")
