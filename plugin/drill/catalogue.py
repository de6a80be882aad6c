"""The drills. Each is data: what it needs, what it sends, what is done when, and what may come twice."""

from __future__ import annotations

import difflib

from tidegate.plugin.drill.drill import Drill
from tidegate.plugin.drill.fault import Need
from tidegate.plugin.drill.faults.clients import Churn, SlowConsumers
from tidegate.plugin.drill.faults.processes import Kill, Pause, Restart
from tidegate.plugin.drill.faults.stored import LoseData
from tidegate.plugin.drill.plan import Load, Shape
from tidegate.plugin.errors import ConfigError

DRILLS = (
    Drill(
        "broker-killed",
        "kill -9 of the broker while messages are due, and its start",
        (Need.BROKER,),
        (Kill(("broker",)),),
    ),
    Drill(
        "daemon-killed",
        "kill -9 of the daemon while messages are due, and its start",
        (Need.DAEMON,),
        (Kill(("daemon",)),),
        hold_s=3.0,
    ),
    Drill(
        "both-killed",
        "kill -9 of broker and daemon at once, and their start",
        (Need.BROKER, Need.DAEMON),
        (Kill(("broker", "daemon")),),
    ),
    Drill(
        "daemon-paused",
        "the daemon stands still for longer than the broker waits for it, and goes on",
        (Need.DAEMON,),
        (Pause("daemon"),),
        hold_s=6.0,
    ),
    Drill(
        "data-directory-lost",
        "the daemon dies with its data directory and starts with an empty one",
        (Need.DAEMON, Need.DATA),
        (LoseData(),),
    ),
    Drill(
        "ack-holes",
        "every other message is acknowledged; then the broker is restarted in an orderly way",
        (Need.BROKER,),
        (Restart(("broker",)),),
        load=Load(messages=50_000, span_s=45.0, shape=Shape.HOLES, far=0.0),
        at_s=12.0,
    ),
    Drill(
        "consumers-churning",
        "consumers are closed and others subscribed, twenty times in six seconds, while messages are due",
        (),
        (Churn(),),
        at_s=0.5,
    ),
    Drill(
        "slow-consumer",
        "a million messages are due, and the consumers take none for a while",
        (),
        (SlowConsumers(),),
        load=Load(messages=1_000_000, shape=Shape.BURST, far=0.0),
        at_s=-1.5,
    ),
    Drill(
        "burst",
        "a million messages are due at one instant",
        (),
        load=Load(messages=1_000_000, shape=Shape.BURST, far=0.0),
    ),
)


def named(name: str) -> Drill:
    """The drill of that name. Raises ``ConfigError`` with the nearest one."""
    for drill in DRILLS:
        if drill.name == name:
            return drill
    near = difflib.get_close_matches(name, [drill.name for drill in DRILLS], 1, 0.4)
    advice = f"is it {near[0]}?" if near else "`tidegate drill list` lists them"
    raise ConfigError(f"there is no drill {name}: {advice}")
