"""Which owner of a subscription told an index what it has last."""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """An owner's claim of a subscription, as it stands in the cursor.

    epoch: counts the owners; 0 if it is not known. number: a random number of 32 bits, which tells it from
    the owner of the same epoch in another history, of a Pulsar that was put back to an earlier state.
    """

    epoch: int
    number: int


UNKNOWN = Claim(0, 0)
"""Nobody has told yet who it is."""

LOST = Claim(0, 1)
"""Somebody may have, and what was stored of it is damaged."""
