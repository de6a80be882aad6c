"""The stream that serves each subscription, and the rule for taking one over.

Invariants: a subscription has at most one stream that hands entries out; the epoch of one of its lives never
falls while the daemon runs; a replaced stream can give up only itself.

The epoch, counted in the cursor, orders owners of a subscription: the new owner of a moved topic opens with a
greater epoch, and the old one is refused from then on. Equal epochs mean the same owner again. Another
incarnation, of a subscription deleted and made again, counts from the beginning.

Example: broker A opens with epoch 4, the topic moves, broker B opens with 5: B replaces A. A opens again with
epoch 4: refused as stale.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.index import SubscriptionName
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode, StreamError


class Ownership:
    """The current stream of every subscription."""

    def __init__(self) -> None:
        self._current: dict[SubscriptionName, Stream] = {}
        self._epochs: dict[SubscriptionName, tuple[bytes, int]] = {}

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._current.values()))

    def get(self, name: SubscriptionName) -> Stream | None:
        """The stream that serves ``name`` now."""
        return self._current.get(name)

    def admit(self, name: SubscriptionName, incarnation: bytes, epoch: int) -> None:
        """Note this owner as seen.

        Raises ``StreamError`` (stale epoch) if a newer owner of this life has been seen.
        """
        if not self.admits(name, incarnation, epoch):
            _, newest = self._epochs[name]
            raise StreamError(
                ErrorCode.STALE_EPOCH,
                f"epoch {epoch} is over: the subscription was opened with epoch {newest}",
            )
        self._epochs[name] = (incarnation, epoch)

    def admits(self, name: SubscriptionName, incarnation: bytes, epoch: int) -> bool:
        """True if no newer owner of this life has been seen."""
        life, newest = self._epochs.get(name, (incarnation, 0))
        return life != incarnation or epoch >= newest

    def take_over(self, stream: Stream) -> Stream | None:
        """Make ``stream`` the current one; returns the replaced one. ``admit`` must have passed."""
        previous = self._current.get(stream.name)
        self._current[stream.name] = stream
        return previous

    def release(self, stream: Stream) -> None:
        """Release the subscription of a stream that has ended, if it is the current one."""
        if self._current.get(stream.name) is stream:
            del self._current[stream.name]

    def forget(self, name: SubscriptionName) -> None:
        """Forget an empty and unserved subscription: its epoch no longer matters."""
        self._epochs.pop(name, None)
