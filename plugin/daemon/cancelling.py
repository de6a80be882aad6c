"""Cancelled messages: acknowledged for their subscription, before a consumer has them."""

from __future__ import annotations

from typing import Any

from tidegate.index import DelayIndex, PositionSet
from tidegate.plugin.daemon.broker_changes import LOOK_PATIENCE_S, BrokerChanges, Outcome
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.wire.messages import CANCEL_VERSION, Cancel


class Cancelling(BrokerChanges[None]):
    """The cancellations that are under way."""

    WHAT = "cancel"
    VERSION = CANCEL_VERSION
    ACKNOWLEDGES = True
    WHY_UNSTORED = "perhaps cancelled, but Pulsar has not stored it: ask again"
    WHY_NO_ROOM = (
        "cancelled, but Pulsar's record of the subscription has no room for it, so it may come if broker and "
        "daemon both fail: raise managedLedgerMaxUnackedRangesToPersist, or ask again when more is "
        "acknowledged"
    )

    async def states(self, index: DelayIndex, positions: PositionSet) -> Outcome:
        """The states of these at the broker, if it answers at once. Changes nothing."""
        stream = self._ownership.get(index.name)
        if stream is None or stream.connection.version < CANCEL_VERSION:
            return Outcome(undecided=positions)
        return await self._of_index(index, positions, None, dry_run=True, patience_s=LOOK_PATIENCE_S)

    async def _prepare(
        self,
        indexes: list[DelayIndex],
        request: dict[str, object],  # noqa: ARG002 nothing is wanted but the positions
        positions: PositionSet,  # noqa: ARG002
    ) -> list[None]:
        return [None] * len(indexes)

    def _message(self, positions: PositionSet, wanted: None, *, ask: bool) -> Cancel:  # noqa: ARG002
        return Cancel(positions, ask=ask)

    def _learn(self, stream: Stream, positions: PositionSet, wanted: None) -> int | None:  # noqa: ARG002
        return self._owner.acknowledge_cancelled(stream, positions)


def with_state(known: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """One message's state in the index, corrected by the broker, which knows its hand-outs."""
    answer = dict(known)
    if outcome.done:
        answer["state"] = "waiting"
    elif outcome.too_late:
        answer["state"] = "handed_out"
    elif outcome.acknowledged:
        answer["state"] = "acknowledged"
        answer.pop("deliver_at_ms", None)
    elif outcome.unknown and answer["state"] == "acknowledged":
        # Up to mark-delete, by its number: perhaps no message of this topic.
        answer["state"] = "unknown"
    return answer
