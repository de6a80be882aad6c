"""The drills. Each is data: its needs, its load, its faults with their times, and the permitted repeats."""

from __future__ import annotations

import difflib

from tidegate.plugin.drill.drill import UNAVOIDABLE, Drill
from tidegate.plugin.drill.fault import Need
from tidegate.plugin.drill.faults.clients import BusyConsumers, Churn, SlowConsumers
from tidegate.plugin.drill.faults.clocks import StepClock
from tidegate.plugin.drill.faults.moves import Move, SeekWhileMoving
from tidegate.plugin.drill.faults.processes import (
    Attach,
    ChangePulsar,
    DetachAll,
    Kill,
    Pause,
    Restart,
    Stutter,
)
from tidegate.plugin.drill.faults.stored import (
    DamageBlocks,
    DiskFillsUp,
    FillDisk,
    LoseData,
    LoseMachine,
    PreviousFormat,
)
from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.drill.plan import Load, Shape
from tidegate.plugin.drill.repeats import Cause
from tidegate.plugin.errors import ConfigError

_NEAR = 0.7

# The time that a broker takes to start, and some seconds more.
_RESTARTED = Load(span_s=14.0)
_ON_ONE_BROKER = (
    Drill(
        "broker-killed",
        "kill -9 of the broker while messages are due, and its start",
        (Need.BROKER,),
        (Kill(("broker",)),),
        load=_RESTARTED,
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
        # The daemon first: only a running broker shows that the daemon beside it is gone.
        (Kill(("daemon", "broker")),),
        load=_RESTARTED,
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
        load=Load(messages=50_000, span_s=22.0, shape=Shape.HOLES, far=0.0),
        drained=True,
    ),
    Drill(
        "pulsar-upgraded",
        "a newer Pulsar starts on the broker's data and on its index",
        (Need.BROKER, Need.NEWER),
        # Not back: a standalone keeps its metadata in a RocksDB, which 4.0 cannot open once 5.0 has.
        (ChangePulsar("broker", newer=True),),
        # Two starts' time on a busy machine: some messages must be due after it.
        load=Load(span_s=90.0),
    ),
    Drill(
        "consumers-churning",
        "consumers are closed and others subscribed, twenty times, while messages are due",
        (),
        (Churn(),),
        at_s=0.5,
        times=20,
        between_s=0.3,
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
        "consumers-behind",
        "500 messages come due each second, and the consumers take at most 200 of them for twelve seconds",
        (),
        # Beyond both consumers' queues, so that the broker waits for permits.
        (BusyConsumers(each_s=0.01, for_s=12.0),),
        load=Load(messages=10_000, span_s=20.0),
    ),
    Drill(
        "burst",
        "a million messages are due at one instant",
        (),
        load=Load(messages=1_000_000, shape=Shape.BURST, far=0.0),
    ),
)

# More than the daemon keeps in memory. Much of it is due soon, but not at once: in several slices.
_SPILLED = Load(messages=6_000, span_s=20.0, far=1.0)
_ON_A_BROKER_THAT_IS_PREPARED = (
    Drill(
        "block-corrupted",
        "a byte of each block that the daemon has stored is changed while it is stopped",
        (Need.DAEMON, Need.DATA),
        (DamageBlocks(),),
        load=_SPILLED,
        hold_s=3.0,
    ),
    Drill(
        "upgrade",
        "the daemon starts on a data directory of the previous format",
        (Need.DAEMON, Need.DATA, Need.PREVIOUS),
        (PreviousFormat(),),
        load=_SPILLED,
    ),
    Drill(
        "disk-full",
        "the daemon's disk fills up while it runs, and is full when it is started again; then there is room",
        (Need.DAEMON, Need.DATA, Need.DISK),
        (DiskFillsUp(), FillDisk()),
        load=Load(span_s=20.0),
        hold_s=3.0,
    ),
    Drill(
        "daemon-clock-ahead",
        "the daemon's clock is an hour ahead for five seconds",
        (Need.DAEMON, Need.CLOCK),
        (StepClock("daemon", 3_600.0),),
        hold_s=5.0,
    ),
    Drill(
        "daemon-clock-behind",
        "the daemon's clock is an hour behind for five seconds",
        (Need.DAEMON, Need.CLOCK),
        (StepClock("daemon", -3_600.0),),
        hold_s=5.0,
    ),
    Drill(
        "broker-clock-stepped",
        "the broker's clock is set three seconds ahead, then back, then three seconds behind, and back",
        (Need.BROKER, Need.CLOCK),
        (StepClock("broker", 3.0), StepClock("broker", -3.0)),
        load=Load(span_s=12.0),
        hold_s=3.0,
    ),
)

_CLUSTER = Load(span_s=16.0)
_TWO = (Need.BROKER, Need.TWO_BROKERS)
_MACHINES = (*_TWO, Need.MACHINES)
_ON_A_CLUSTER = (
    Drill(
        "broker-paused",
        "the topic's broker stands still until another has taken over, and goes on as a zombie",
        _TWO,
        (Pause("broker", replace_clients=True, forgets=Forgets.UNSTORED),),
        # On a user's own cluster a pause shows only after twelve seconds.
        load=Load(span_s=24.0),
        hold_s=4.0,
        recovers=True,
    ),
    Drill(
        "machine-lost",
        "the topic's broker and its daemon die for good, with the disk; another broker takes over",
        _MACHINES,
        (LoseMachine(),),
        load=_CLUSTER,
        hold_s=1.0,
        recovers=True,
    ),
    Drill(
        "bundle-moved",
        "the topic's bundle moves to the other broker, ten times",
        (Need.MOVE,),
        (Move(),),
        load=Load(span_s=20.0),
        times=10,
        between_s=0.5,
    ),
    Drill(
        "rolling-restart",
        "each machine's broker and daemon is restarted in an orderly way, one after the other",
        _MACHINES,
        (Restart(("machine-a",)), Restart(("machine-b",))),
        load=Load(span_s=30.0),
    ),
    Drill(
        "cluster-upgraded",
        "a newer Pulsar starts in the place of each broker, one by one; then each goes back to its own",
        (*_TWO, Need.NEWER),
        (
            ChangePulsar("broker-a", newer=True),
            ChangePulsar("broker-b", newer=True),
            ChangePulsar("broker-a", newer=False),
            ChangePulsar("broker-b", newer=False),
        ),
        # Four starts' time on a busy machine, and the time between them.
        load=Load(span_s=240.0),
        hold_s=3.0,
    ),
    Drill(
        "bookie-slow",
        "the bookie stands still for most of the time",
        (Need.BOOKIE,),
        (Stutter("bookie", times=16, still_s=0.4, every_s=0.5),),
        # The fault takes eight seconds, on a busy machine ten, and messages must be due after it.
        load=Load(span_s=20.0),
    ),
    Drill(
        "bookie-away",
        "kill -9 of the only bookie, and its start",
        (Need.BOOKIE,),
        (Kill(("bookie",)),),
        load=_CLUSTER,
        hold_s=2.0,
    ),
    Drill(
        "seek-while-moving",
        "the cursor is set back to the beginning while the topic's bundle moves",
        (Need.MOVE, Need.ADMIN),
        (SeekWhileMoving(),),
        load=Load(span_s=12.0),
        repeats_allowed=UNAVOIDABLE | {Cause.REWOUND},
    ),
)

# Of Pulsar's own trackers, by default.
_TICK_MS = 1_000
_ON_AN_ATTACHED_CLUSTER = (
    Drill(
        "cluster-detached",
        "tidegate detach-all takes both brokers back to Pulsar's tracker; then each is attached again",
        (*_TWO, Need.ATTACHED),
        (DetachAll(), Attach("broker-a"), Attach("broker-b")),
        # As cluster-upgraded: four starts.
        load=Load(span_s=240.0),
        hold_s=10.0,
        early_ms=_TICK_MS,
    ),
)

DRILLS = (*_ON_ONE_BROKER, *_ON_A_BROKER_THAT_IS_PREPARED, *_ON_A_CLUSTER, *_ON_AN_ATTACHED_CLUSTER)


def named(name: str) -> Drill:
    """The drill of that name. Raises ``ConfigError`` with similar names."""
    for drill in DRILLS:
        if drill.name == name:
            return drill
    names = [drill.name for drill in DRILLS]
    near = difflib.get_close_matches(name, names, 1, _NEAR)
    near = near or [one for one in names if name in one.split("-")]
    advice = f"is it {' or '.join(near)}?" if near else "`tidegate drill list` lists them"
    raise ConfigError(f"there is no drill {name}: {advice}")
