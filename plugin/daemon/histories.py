"""Checks that an index and a cursor are of one history (docs/decisions/claims.md). Pure functions.

They are not if Pulsar went back to an earlier state, as from a backup, and the index did not: Pulsar then
reuses ids for other messages.

An owner writes its claim into the cursor before all else, and the cursor keeps the last claims in order. So
an index is of this history if its last owner's claim stands there, in its place. A topic put back to a time
under that very claim shows this only if the index knows positions beyond its end.

Example: the cursor has the claims 7:a, 8:b, 9:c. An index last owned by 8:b is of this history; one last
owned by 8:x is of another, and begins anew.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.index import LOST_CLAIM, Claim, PositionState
from tidegate.plugin.wire.messages import Open


class Break(StrEnum):
    """The sign that an index is of another history than the cursor."""

    CLAIM = "another owner has the epoch of its last owner"
    EPOCH = "its last owner's epoch is yet to come"
    OLD = "the cursor does not know all owners since"
    LOST = "the record of its last owner is damaged"
    END = "it has positions that did not exist when the subscription was claimed"
    MARK_DELETE = "the cursor's mark-delete position is older than the one it reported"

    @property
    def said(self) -> str:
        """The meaning, for the log."""
        if self is Break.LOST:
            return "the record of the cursor that an index belongs to is damaged"
        return (
            "an index is of another history than its cursor: Pulsar was put back to an earlier state, or"
            " unloaded the topic amid a seek"
        )


def claim_of(request: Open) -> Claim | None:
    """An OPEN's claim, if any."""
    return Claim(request.epoch, request.claims[-1]) if request.claims else None


def find_break(state: PositionState, request: Open) -> Break | None:
    """The sign that the index is of another history than the cursor of ``request``, if any.

    An empty index cannot be wrong.
    """
    return None if state.empty else compare(state, request)


def compare(state: PositionState, request: Open) -> Break | None:
    """The same, for an empty index too: the history of its claim and its positions counts."""
    return _broken_claims(state, request) or _broken_mark_delete(state, request)


def _broken_claims(state: PositionState, request: Open) -> Break | None:
    claim = claim_of(request)
    known = state.claim
    if claim is None or claim == known:
        return None  # under the same claim the topic has grown since
    if known == LOST_CLAIM:
        return Break.LOST  # the topic's end proves too little: it may have grown past all known positions
    if known.epoch:
        owners_since = claim.epoch - known.epoch
        if owners_since < 0:
            return Break.EPOCH
        if owners_since >= len(request.claims):
            return Break.OLD
        if request.claims[-1 - owners_since] != known.number:
            return Break.CLAIM
    # A rebuild's entries have no known owner: the end still shows a break.
    return Break.END if (-1, -1) != request.end < state.last() else None


def _broken_mark_delete(state: PositionState, request: Open) -> Break | None:
    """The sign in the mark-delete position: a reset moves it back, too, but never under the same seal.

    (-1, -1) stands for an unknown position.
    """
    same_seal = 0 != request.generation == state.generation
    if same_seal and (-1, -1) != request.mark_delete < state.mark:
        return Break.MARK_DELETE
    return None
