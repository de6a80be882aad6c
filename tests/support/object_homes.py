"""Homes of index logs in stores of objects, and the pointer that a broker would keep, without a broker."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import StalePointerError
from tidegate.index.log.object_home import About, ObjectHome
from tidegate.index.log.objects import Objects
from tidegate.index.names import SubscriptionName
from tidegate.plugin.daemon.homes.object_stores import ObjectStores, checked_url, interval_ms

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "sub"), bytes(range(16)))


class ObjectWorld:
    """The store at a URL, and the pointer of one subscription; each owner has an `ObjectHome` of it."""

    def __init__(self, url: str, identity: Identity = IDENTITY) -> None:
        self.url = checked_url(url)
        self.pointer = ""
        self.stores = ObjectStores()
        self.objects: Callable[[], Objects] = lambda: self.stores.opened(self.url)
        self._identity = identity
        self._epoch = 0

    def new_owner(self) -> ObjectHome:
        """The home as a new owner sees it, who is the only one to change the pointer from now on."""
        self._epoch += 1
        return ObjectHome(
            self.objects,
            About(self._identity, self._epoch),
            kind=self.url,
            interval_ms=interval_ms(self.url),
            tail_entries_max=512,
            random=lambda: secrets.randbits(32),
            offload=self.stores.offload,
            point=self._point_of(self._epoch),
        )

    def _point_of(self, epoch: int) -> Callable[[str, str], Awaitable[None]]:
        async def point(old: str, new: str) -> None:
            if epoch != self._epoch or self.pointer != old:
                raise StalePointerError(f"the pointer is {self.pointer!r}, or of another owner")
            self.pointer = new

        return point
