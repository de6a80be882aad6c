"""Steps of a history. Each action takes plain JSON arguments and is total: where it makes no sense (the topic
has no owner, the process is down) it does nothing, so that a shorter history stays valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.sim.bookkeeper import NO_DELAY
from tests.sim.client import Client
from tests.sim.history import Step
from tests.sim.kernel import NS_PER_MS, Violation
from tests.sim.lateness import FOREVER_NS
from tests.sim.log_home import Fate, LogDamage, Spoiling, Trap
from tests.sim.objects import URL
from tests.sim.override_ledgers import Failing
from tests.sim.store import PowerCut, Refusal, Trouble
from tests.sim.world import World
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER
from tidegate.plugin.shared.moments import AT_ONCE_MS
from tidegate.plugin.wire.log_messages import LogOp

Action = Callable[..., None]
ACTIONS: dict[str, Action] = {}

_EVERYDAY = frozenset(
    (
        *("wait", "publish", "roll_over", "acknowledge", "acknowledge_late", "negative_acknowledge"),
        *("permits", "pace", "at_log_request", "look"),
    )
)
"""No disturbance: messages must be in time nevertheless."""
_EXCUSES_ALL = frozenset(("damage", "damage_log", "lose_log", "set_daemon", "set_log_home"))
"""Their consequences may come at any time."""
_DURATIONS = ("for_ms", "down_ms", "gone_ms")

SLOW_WRITE_NS = 100 * NS_PER_MS
SLOW_BOOKIE_NS = 4_000 * NS_PER_MS


def action(call: Action) -> Action:
    """Make a function an action of its name."""
    ACTIONS[call.__name__] = call
    return call


def perform(world: World, step: Step) -> None:
    """Do the step, with its luck."""
    world.kernel.random.seed(step.luck)
    world.kernel.note(f"== {step.do} {step.args}")
    world.check_lateness()
    _do(world, step.do, step.args)
    world.check()


def _do(world: World, do: str, args: dict[str, Any]) -> None:
    if do in _EXCUSES_ALL:
        world.kernel.disturb(FOREVER_NS)
    elif do not in _EVERYDAY:
        for_ms = max((args.get(name, 0) for name in _DURATIONS), default=0)
        world.kernel.disturb(for_ms * NS_PER_MS)
    ACTIONS[do](world, **args)


def _down_for(world: World, call: Callable[[], None], down_ms: int) -> None:
    world.kernel.after(down_ms * NS_PER_MS, None, call)


# ---- the topic


@action
def wait(world: World) -> None:
    """Let time pass."""


@action
def publish(world: World, delays_ms: list[int]) -> None:
    """Publish messages, due so long after the true time; -1 for a plain one. Needs a running owner."""
    owner = world.owner
    if owner is None or not owner.running or not owner.served:
        world.skipped["publish"] += 1
        return
    now_ms = world.kernel.now_ns // NS_PER_MS
    world.publish([NO_DELAY if delay_ms < 0 else now_ms + delay_ms for delay_ms in delays_ms])


@action
def roll_over(world: World, skipped_ids: int = 0) -> None:
    """The topic's next message begins a new ledger."""
    world.bookkeeper.log.roll_over(skipped_ids)


@action
def unload(world: World, to: int | None = None) -> None:
    """The owner closes the topic in good order; broker `to` loads it next, if it can."""
    world.unload(to)


@action
def seek(world: World, to: int, subscription: int = 0) -> None:
    """Reset a cursor to a message, given in thousandths of the topic; 1000 is its end."""
    wanted = world.subscriptions[subscription % len(world.subscriptions)]
    for served in world.served():
        if served.subscription is wanted and served.broker.running:
            served.reset(world.position_at(to), lambda written: world.kernel.note(f"reset done: {written}"))


@action
def clear_backlog(world: World, subscription: int = 0) -> None:
    """Skip all unacknowledged messages of a subscription."""
    wanted = world.subscriptions[subscription % len(world.subscriptions)]
    for served in world.served():
        if served.subscription is wanted and served.broker.running:
            served.clear_backlog()


@action
def skip(world: World, count: int, subscription: int = 0) -> None:
    """Skip the first unacknowledged messages of a subscription. An eviction by a quota and a cumulative
    acknowledgement store the same.
    """
    wanted = world.subscriptions[subscription % len(world.subscriptions)]
    for served in world.served():
        if served.subscription is wanted and served.broker.running:
            served.skip(count)


@action
def unsubscribe(world: World, subscription: int = 0, to: int = 0, gone_ms: int = 0) -> None:
    """Delete a subscription; a consumer that comes after that time makes it again, at a message given in
    thousandths of the topic.
    """
    wanted = world.subscriptions[subscription % len(world.subscriptions)]
    for served in world.served():
        if served.subscription is wanted and served.broker.running:
            wanted.initial = to
            wanted.gone_until_ns = world.kernel.now_ns + gone_ms * NS_PER_MS
            served.unsubscribe()
            return


# ---- consumers


def _client(world: World, number: int) -> Client:
    return world.clients[number % len(world.clients)]


@action
def connect(world: World, client: int) -> None:
    """A consumer comes, and from now on returns by itself."""
    _client(world, client).connect()


@action
def disconnect(world: World, client: int) -> None:
    """A consumer goes."""
    _client(world, client).disconnect()


@action
def drop(world: World, client: int) -> None:
    """A consumer's connection breaks."""
    _client(world, client).drop()


@action
def acknowledge(world: World, client: int, skip: int, count: int) -> None:
    """A consumer acknowledges `count` messages in the order of arrival, after `skip` of them."""
    consumer = _client(world, client)
    for position in list(consumer.unprocessed)[skip : skip + count]:
        consumer.acknowledge(position)


@action
def negative_acknowledge(world: World, client: int, skip: int, count: int) -> None:
    """A consumer gives messages back."""
    consumer = _client(world, client)
    for position in list(consumer.unprocessed)[skip : skip + count]:
        consumer.negative_acknowledge(position)


@action
def acknowledge_late(world: World, client: int, count: int) -> None:
    """A consumer acknowledges messages of its former connection."""
    consumer = _client(world, client)
    for position in list(consumer.left_over)[:count]:
        consumer.acknowledge_late(position)


@action
def permits(world: World, client: int, permits: int) -> None:
    """How many messages a consumer takes at once, from its next connection on."""
    _client(world, client).permits = permits


@action
def pace(world: World, client: int, ack_after_ms: int) -> None:
    """How long a consumer takes to acknowledge at most; -1: only on command."""
    _client(world, client).ack_after_ms = None if ack_after_ms < 0 else (0, ack_after_ms)


# ---- brokers and daemons


@action
def kill_broker(world: World, broker: int, down_ms: int) -> None:
    """kill -9 of a broker, with a start after that time."""
    victim = world.brokers[broker % 2]
    if victim.process is not None:
        world.kernel.kill(victim.process)
    _down_for(world, lambda: world.start_broker(victim), down_ms)


@action
def kill_at_send(world: World, broker: int, frame: int, down_ms: int) -> None:
    """kill -9 of a broker when its shim sends the n-th frame from now; it starts again that time from now."""
    victim = world.brokers[broker % 2]
    if victim.link is not None:
        link = victim.link
        link.kill_at_send = frame
        _down_for(world, lambda: setattr(link, "kill_at_send", None), down_ms)
    _down_for(world, lambda: world.start_broker(victim), down_ms)


@action
def freeze_broker(world: World, broker: int, for_ms: int) -> None:
    """SIGSTOP of a broker, and SIGCONT after that time: longer than the session, and it becomes a zombie."""
    world.freeze(world.brokers[broker % 2], for_ms)


@action
def kill_daemon(world: World, daemon: int, down_ms: int) -> None:
    """kill -9 of a daemon, with a start after that time."""
    victim = world.daemons[daemon % len(world.daemons)]
    victim.kill()
    _down_for(world, victim.start, down_ms)


@action
def kill_at_write(world: World, daemon: int, write: int, down_ms: int) -> None:
    """kill -9 of a daemon at its n-th write to the store from now: odd before it, even after it."""
    victim = world.daemons[daemon % len(world.daemons)]
    victim.disk.kill_at_write = write

    def again() -> None:
        victim.disk.kill_at_write = None
        victim.start()

    _down_for(world, again, down_ms)


@action
def stop_daemon(world: World, daemon: int, down_ms: int) -> None:
    """SIGTERM of a daemon, with a start after that time."""
    victim = world.daemons[daemon % len(world.daemons)]
    victim.stop()
    _down_for(world, victim.start, down_ms)


@action
def freeze_daemon(world: World, daemon: int, for_ms: int) -> None:
    """SIGSTOP of a daemon, and SIGCONT after that time."""
    process = world.daemons[daemon % len(world.daemons)].process
    if process is not None:
        world.kernel.stop(process)
        world.kernel.after(for_ms * NS_PER_MS, None, world.kernel.go_on, process)


@action
def kill_both(world: World, broker: int, down_ms: int) -> None:
    """kill -9 of a broker and its daemon at once."""
    number = world.machine_of(broker % 2)
    kill_broker(world, broker, down_ms)
    kill_daemon(world, number, down_ms)


@action
def power_cut(world: World, machine: int, how: str, down_ms: int) -> None:
    """A machine loses power: its processes die, its disk loses unsynced data (see `store.PowerCut`)."""
    number = machine % len(world.clocks)
    for at, broker in enumerate(world.brokers):
        if world.machine_of(at) == number:
            kill_broker(world, at, down_ms)
            assert not broker.up
    disk, daemon = world.disks[number], world.daemons[number]
    daemon.kill()
    lost = disk.cut_power(PowerCut(how))
    world.kernel.note(f"{lost} batches are lost")
    _down_for(world, daemon.start, down_ms)


@action
def set_log_home(world: World, broker: int, home: str, down_ms: int) -> None:
    """Kill a broker; its next start keeps index logs elsewhere, or nowhere ("")."""
    victim = world.brokers[broker % 2]
    kinds = {"": "", "bookkeeper": BOOKKEEPER, "objects": URL}
    victim.options = replace(victim.options, log_home=kinds[home])
    kill_broker(world, broker, down_ms)


@action
def set_daemon(world: World, daemon: int, settings: dict[str, Any], down_ms: int) -> None:
    """SIGTERM of a daemon; its next start has other settings (`config`)."""
    victim = world.daemons[daemon % len(world.daemons)]
    victim.options = replace(world.config, **settings).daemon_options()
    stop_daemon(world, daemon, down_ms)


@action
def back_up(world: World, gently: bool, down_ms: int) -> None:
    """Back up Pulsar, with all brokers down, stopped or killed."""
    world.backups.make(gently=gently, down_ms=down_ms)


@action
def put_back(world: World, gently: bool, daemons: str, down_ms: int) -> None:
    """Restore the last backup of Pulsar, with all brokers down, beside the indexes, which went on; `daemons`,
    `stop` or `kill`: these start again with the brokers.
    """
    if not world.backups.put_back(gently=gently, daemons=daemons, down_ms=down_ms):
        world.skipped["put_back"] += 1


# ---- wires, clocks, disks


@action
def cut(world: World, broker: int) -> None:
    """The connection between a broker and its daemon breaks, amid any bytes."""
    link = world.brokers[broker % 2].link
    if link is not None and link.session is not None and link.session.wire is not None:
        link.session.wire.cut()


@action
def clock(world: World, machine: int, by_ms: int) -> None:
    """Step a machine's wall clock."""
    world.clocks[machine % len(world.clocks)].step(by_ms)


@action
def drift(world: World, machine: int, ppm: int) -> None:
    """A machine's clocks run faster by so many millionths."""
    world.clocks[machine % len(world.clocks)].drift(ppm)


@action
def refuse_writes(world: World, machine: int, for_ms: int, written: bool = False) -> None:
    """A machine's disk is full for that time; with `written`, refused writes are there nevertheless."""
    daemon = world.daemons[machine % len(world.clocks)]
    daemon.trouble(Trouble.REFUSES_BUT_WRITES if written else Trouble.REFUSES)
    _down_for(world, lambda: daemon.trouble(Trouble.NONE), for_ms)


@action
def fail_write(world: World, machine: int, write: int, written: bool = False, kinds: str = "") -> None:
    """A machine's disk refuses the n-th write from now, or the n-th with a value of one of these kinds
    (`index.keys`); with `written`, it is there nevertheless.
    """
    number = machine % len(world.clocks)
    trouble = Trouble.REFUSES_BUT_WRITES if written else Trouble.REFUSES
    world.disks[number].fail_at_write = Refusal(write, trouble, kinds.encode())
    world.daemons[number].promises.troubled = True


@action
def refuse_reads(world: World, machine: int, for_ms: int) -> None:
    """A machine's disk refuses reads for that time, as with too many open files."""
    daemon = world.daemons[machine % len(world.clocks)]
    daemon.disk.refuses_reads = True
    daemon.promises.troubled = daemon.promises.unread = True

    def well() -> None:
        daemon.disk.refuses_reads = False

    _down_for(world, well, for_ms)


@action
def slow_disk(world: World, machine: int, for_ms: int) -> None:
    """A machine's disk takes up to a tenth of a second for a write."""
    disk = world.disks[machine % len(world.clocks)]
    disk.write_ns = SLOW_WRITE_NS

    def well() -> None:
        disk.write_ns = world.config.write_us * 1_000

    _down_for(world, well, for_ms)


@action
def damage(world: World, machine: int, kinds: str) -> None:
    """A stored value of one of these kinds (`index.keys`) is damaged."""
    key = world.disks[machine % len(world.clocks)].damage(kinds.encode())
    world.kernel.note(f"damaged: {key!r}")


@action
def lose_data(world: World, machine: int, down_ms: int) -> None:
    """Delete a daemon's data directory; kill the daemon and start it after that time."""
    number = machine % len(world.clocks)
    world.daemons[number].kill()
    world.disks[number].lose()
    world.daemons[number].promises.daemon_died()
    _down_for(world, world.daemons[number].start, down_ms)


@action
def lose_log(world: World, machine: int, batches: int, down_ms: int) -> None:
    """Damage the end of a daemon's log while it is down: so many batches are gone, durable ones too."""
    number = machine % len(world.clocks)
    world.daemons[number].kill()
    lost = world.disks[number].lose_log(batches)
    world.kernel.note(f"{lost} commits are lost that had been durable")
    _down_for(world, world.daemons[number].start, down_ms)


@action
def width(world: World, daemon: int, width_ms: int) -> None:
    """Set the slice width of all of a daemon's subscriptions; 0: automatic."""
    life = world.daemons[daemon % len(world.daemons)].life
    if life is None or life.engine is None or life.stopping:
        return
    connections = [wire.connection for wire in life.wires if wire.daemon_open and wire.connection is not None]
    request: dict[str, Any] = {"what": "width", "subscription": "*"}
    request |= {"auto": True} if width_ms == 0 else {"width_ms": width_ms}
    life.widths += 1
    asked = life.widths

    def check(reply: bytes) -> None:
        is_last = life.widths == asked
        if width_ms and is_last and b'"changed"' in reply and b'"slice_width_auto":true' in reply:
            raise Violation(f"a width of {width_ms} ms was set, and an automatic one is answered: {reply!r}")

    for connection in connections[:1]:
        life.loop.call_soon(life.engine.queries.ask, connection, request, check)


# ---- operators and rebuilds


@action
def look(world: World, subscription: int = 0, limit: int = 1_000, key: str = "") -> None:
    """List a subscription's messages in pages, perhaps those with a key, and read each daemon's status."""
    world.look(subscription, limit, key)


@action
def pause(world: World, subscription: int = 0) -> None:
    """Pause a subscription: nothing leaves from the answer on."""
    world.pace(subscription, pauses=True)


@action
def resume(world: World, subscription: int = 0) -> None:
    world.pace(subscription, pauses=False)


@action
def cancel(world: World, subscription: int = 0, share: int = 0, count: int = 1) -> None:
    """Cancel so many messages from so many thousandths on, rather those that have not come."""
    world.change(subscription, "cancel", share, count, None)


@action
def reschedule(world: World, in_ms: int, subscription: int = 0, share: int = 0, count: int = 1) -> None:
    """Move messages, named as in `cancel`, to a time so long after the true one."""
    at_ms = world.kernel.now_ns // NS_PER_MS + in_ms
    world.change(subscription, "reschedule", share, count, at_ms)


@action
def release(world: World, subscription: int = 0, share: int = 0, count: int = 1) -> None:
    """Have messages, named as in `cancel`, due at once."""
    world.change(subscription, "release", share, count, AT_ONCE_MS)


@action
def ask_again(world: World, subscription: int = 0) -> None:
    """Repeat the last request."""
    world.change(subscription, "again", 0, 0, None, again=True)


@action
def fail_override(world: World, request: int, done: bool = False) -> None:
    """The n-th request about overrides' ledgers from now fails, perhaps once executed."""
    world.bookkeeper.overrides.failing = Failing(request, done)


@action
def rebuild(
    world: World,
    subscription: int = 0,
    share: int = 100,
    let_go: int = 0,
    block_entries: int = 100,
    ends_ms: int = -1,
) -> None:
    """Put so many percent of the topic's delayed messages that the cursor has not acknowledged into the
    owner's index, or some daemon's without an owner, and have it let go of so many percent of all. Killed
    after that time if not -1.
    """
    world.rebuild(subscription, share, let_go, block_entries, ends_ms)


# ---- the home of index logs


@action
def bookies_away(world: World, for_ms: int) -> None:
    """No bookie of the index logs is there for that time: requests are refused, or wait."""
    world.log_bookies.away_until_ns = world.kernel.now_ns + for_ms * NS_PER_MS


@action
def bookies_slow(world: World, for_ms: int) -> None:
    """A request for an index log takes up to some seconds for that time."""
    world.log_bookies.io_ns = SLOW_BOOKIE_NS

    def well() -> None:
        world.log_bookies.io_ns = world.config.log_io_us * 1_000

    _down_for(world, well, for_ms)


@action
def at_log_request(world: World, op: str, request: int, then: dict[str, Any]) -> None:
    """At some daemon's n-th such request for an index log from now (`LogOp`), another action happens: `then`
    has its name as `do`, and its arguments. One waits at a time.
    """
    args = {name: value for name, value in then.items() if name != "do"}

    def spring() -> None:
        world.kernel.note(f"== at {op}: {then}")
        _do(world, then["do"], args)

    world.log_bookies.trap = Trap(LogOp[op], request, spring)


@action
def spoil_answers(world: World, op: str, fate: str, share: float, for_ms: int) -> None:
    """For that time so many of the answers to such an operation of index logs (`LogOp`, or ANY) are spoiled
    (`log_home.Fate`), after its execution.
    """
    until_ns = world.kernel.now_ns + for_ms * NS_PER_MS
    spoiled = None if op == "ANY" else LogOp[op]
    world.log_bookies.spoiling = Spoiling(spoiled, Fate(fate), share, until_ns)


@action
def damage_log(world: World, how: str) -> None:
    """Damage a stored entry of an index log (`log_home.LogDamage`)."""
    world.kernel.note(f"log ledger {world.damage_log(LogDamage(how))} is damaged")
