"""A drill: data, with its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.plugin.drill.fault import Fault, Need
from tidegate.plugin.drill.plan import Load
from tidegate.plugin.drill.repeats import Cause

UNAVOIDABLE = frozenset({Cause.IN_FLIGHT, Cause.UNPERSISTED, Cause.PLAIN})
"""Delivery is at least once: messages not stored as acknowledged when a process died must come again."""


@dataclass(frozen=True)
class Drill:
    """One drill. ``at_s``: seconds after the first message is due; ``hold_s``: from a fault to its undoing.

    The faults follow one another, ``times`` times with ``between_s`` in between. With ``apart_s`` each begins
    so long after the begin of the one before, or later: once everything due by then has come. ``recovers``:
    deliveries continue before the fault is undone, because another broker takes over. ``drained``: it first
    waits until everything due by then has come and the broker has its acknowledgements. ``early_ms``: how
    early messages may come after the first fault, under a tracker of Pulsar's.
    """

    name: str
    does: str
    needs: tuple[Need, ...]
    faults: Sequence[Fault] = ()
    load: Load = field(default_factory=Load)
    at_s: float = 1.5
    hold_s: float = 0.0
    times: int = 1
    between_s: float = 1.0
    apart_s: float = 0.0
    recovers: bool = False
    drained: bool = False
    repeats_allowed: frozenset[Cause] = UNAVOIDABLE
    early_ms: int = 0
