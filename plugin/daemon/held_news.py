"""News of held positions for a broker after the answer to its OPEN: positions added by others, lost
positions.

Invariants: no news goes out before the last HELD of the answer is written. Positions held since follow right
after it; lost ones wait, because a HELD from before the loss must not follow UNHELD. A lost position is told
once, or its stream ends, and the answer to the next OPEN has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.index import Catalog, PositionSet, SubscriptionName
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.wire.messages import Held, Unheld
from tidegate.plugin.wire.position_pieces import split_positions

if TYPE_CHECKING:
    import structlog


class HeldNews:
    """Sends HELD and UNHELD to the current streams.

    on_bug: called with a stream whose news failed.
    """

    def __init__(
        self,
        catalog: Catalog,
        ownership: Ownership,
        log: structlog.typing.FilteringBoundLogger,
        *,
        on_bug: Callable[[Stream, Exception], None],
    ) -> None:
        self._on_bug = on_bug
        self._catalog = catalog
        self._ownership = ownership
        self._log = log

    def answer_sent(self, stream: Stream) -> None:
        """Note that the last HELD of the answer is written."""
        stream.answer_sent = True
        untold, stream.untold = stream.untold, PositionSet()
        self.tell_held(stream.name, stream.session.index.state.held_among(untold))

    def tell_held(self, name: SubscriptionName, positions: PositionSet) -> None:
        """Tell that the index holds these positions, though its broker has not added them."""
        stream = self._ownership.get(name)
        if stream is None or not stream.session.answer_begun or stream.session.closing:
            return  # the answer to OPEN will have them
        if not stream.answer_sent:
            stream.untold.update(positions)
            return
        for part in split_positions(positions):
            stream.send(Held(part, PositionSet(), last=False))

    def tell_unheld(self) -> None:
        """Tell positions lost to damage; for an unserved subscription the next answer to OPEN does."""
        for index in self._catalog.unheld():
            stream = self._ownership.get(index.name)
            if stream is not None and stream.answer_sent:
                try:
                    self._send_unheld(stream)
                except Exception as error:
                    # The broker skips positions that it believes held, and nobody would hand them out.
                    self._on_bug(stream, error)

    def _send_unheld(self, stream: Stream) -> None:
        lost = stream.session.index.take_unheld()
        if lost:
            self._log.error(
                "positions lost to a corrupt block are read again",
                stream=repr(stream.session),
                lost=len(lost),
            )
            for part in split_positions(lost):
                stream.send(Unheld(part))
