"""Receipts of a bench's consumer, made by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.pulsar import receipts


def received(*rows: tuple[int, int, int, int]) -> NDArray[np.void]:
    """Each: sequence number, deliver_at in ms, when it arrived and when it was acknowledged in ns."""
    return np.array(list(rows), receipts.RECORD)
