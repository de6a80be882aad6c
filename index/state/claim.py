"""The owner behind the latest changes of an index."""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """An owner's claim of a subscription, as it stands in the cursor.

    epoch: counts the owners; 0 if unknown. number: 32 random bits, different between owners of one epoch in
    two histories: Pulsar may have been restored to an earlier state.
    """

    epoch: int
    number: int


UNKNOWN = Claim(0, 0)
"""No owner has told yet."""

LOST = Claim(0, 1)
"""An owner may have told, but its stored claim is damaged."""
