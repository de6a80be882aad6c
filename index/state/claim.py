"""The owner that told an index its latest changes."""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """An owner's claim of a subscription, as it stands in the cursor.

    epoch: counts the owners; 0 if unknown. number: 32 random bits, which differ between owners of the same
    epoch in two histories: Pulsar may have been restored to an earlier state.
    """

    epoch: int
    number: int


UNKNOWN = Claim(0, 0)
"""Nobody has told yet who it is."""

LOST = Claim(0, 1)
"""Somebody may have, and what was stored of it is damaged."""
