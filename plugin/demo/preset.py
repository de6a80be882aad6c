"""The demo as a drill: a mixed load, kill -9 of the broker at one third, of the daemon at two thirds."""

from __future__ import annotations

from tidegate.plugin.drill.drill import UNAVOIDABLE, Drill
from tidegate.plugin.drill.fault import Need
from tidegate.plugin.drill.faults.processes import Kill
from tidegate.plugin.drill.plan import Load, Shape
from tidegate.plugin.drill.stands.trackers import is_ours

TRACKERS = ("tidegate", "in-memory", "bucket")


def demo_drill(messages: int, seconds: float, far: int, tracker: str) -> Drill:
    """``messages`` that come due within ``seconds``, and ``far`` due tomorrow.

    Pulsar's own trackers have no daemon: there the broker alone is killed.
    """
    broker, daemon = Kill(("broker",)), Kill(("daemon",))
    return Drill(
        "demo",
        "retries, order time-outs and a burst come due, through kill -9 of broker and daemon",
        (Need.BROKER, Need.DAEMON) if is_ours(tracker) else (Need.BROKER,),
        (broker, daemon) if is_ours(tracker) else (broker,),
        load=Load(messages, seconds, Shape.MIXED, far / messages),
        at_s=seconds / 3,
        apart_s=seconds / 3,
        repeats_allowed=UNAVOIDABLE,
    )
