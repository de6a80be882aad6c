"""Processor time by task and by place in the code, from clocks and samples together.

Threads' clocks measure the time; samples divide a thread's time in its own code among tasks. So profilers
that miss threads (the JVM's own) or idle ones distort no sum. Kernel time (sockets, files, waiting) is a task
of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.cost.clocks import ThreadTime
from bench.cost.samples import Stack, Stacks
from bench.harness.results import Frame

MACHINERY = re.compile(r"java\.|jdk\.|io\.netty\.(util|channel)\.|org\.apache\.bookkeeper\.common\.util\.|\d")
KERNEL, REST = "system calls", "everything else"

Pattern = tuple[str, str]
"""A task, and a regular expression of its threads or frames. The first that fits counts."""


class Rules(NamedTuple):
    """How samples get a task: by the thread; else by the innermost frame; else by the thread."""

    threads: Sequence[Pattern]
    frames: Sequence[Pattern]
    otherwise: Sequence[Pattern] = ()


BROKER = Rules(
    (
        (
            "garbage collection",
            r"[ZX](Worker|Driver|Director|Stat|Uncommit|Unmap)|GC Thread|G1 |RuntimeWorker",
        ),
        ("compiler", r"C[12] Compiler"),
        ("watching acknowledgements", r"tidegate-ack-wat"),
        ("frames to the daemon", r"tidegate-link"),
        ("reading", r"tidegate-read-ah"),
        ("gating", r"tidegate-"),
        ("journal", r"BookieJournal|ForceWrite|bookie-journal"),
        ("storage", r"SyncThread|db-storage|BookieWrite|BookieRead|bookie-io|GarbageColl|rocksdb"),
    ),
    (
        ("frames to the daemon", r"tidegate\.pulsar\.(wire|link)\."),
        ("reading", r"tidegate\.pulsar\.readahead\."),
        ("gating", r"tidegate\.pulsar\.|org\.apache\.pulsar\.broker\.delayed\."),
        ("parsing", r"proto\.MessageMetadata|common\.protocol\.Commands\.(parse|peek|skip)"),
        ("journal", r"bookkeeper\.bookie\.Journal"),
        ("storage", r"bookkeeper\.(bookie|proto\.(Bookie|Read|Write|BatchedRead|PacketProcessor))"),
        (
            "acknowledging",
            r"mledger\.impl\.ManagedCursor\w*\.\w*([dD]elet|[aA]ck)|PersistentSubscription\.ack|PendingAck"
            r"|\.Consumer\.\w*[aA]ck|ServerCnx\.handleAck|InMemoryRedelivery",
        ),
        (
            "publishing",
            r"mledger\.impl\.(OpAddEntry|ManagedLedger\w*\.\w*[aA]dd)|bookkeeper\.client\.\w*Add"
            r"|LedgerHandle\.\w*[aA]dd|PersistentTopic\.(publish|add)|broker\.service\.(Producer|\w*Publish)"
            r"|ServerCnx\.handleSend|MessageDeduplication|proto\.checksum",
        ),
        ("reading", r"bookkeeper\.(mledger|client)\."),
        ("dispatching", r"broker\.service\..*(Dispatcher|Consumer|CommandSender|Entry|Filter|Redeliver)"),
        ("network", r"bookkeeper\.proto|pulsar\.(common\.protocol|broker\.service)"),
    ),
    (("network", r"pulsar-io|bookkeeper-io|BookKeeperClient"),),
)
DAEMON = Rules(
    (),
    (
        ("index log", r"tidegate\.(index\.log|plugin\.daemon\.(index_logs|homes))"),
        (
            "journal",
            r"tidegate\.index\.(journal|rocks)|tidegate\.plugin\.daemon\.(committer|turns|durable_news)",
        ),
        ("blocks on disk", r"tidegate\.index\.(blocks|catalog\.(background|persist|chains))|pcodec"),
        ("index", r"tidegate\.index\."),
        ("frames", r"tidegate\.plugin\.(wire|daemon\.(connection|outgoing|half_frames|session|listener))"),
        ("handing out", r"tidegate\.plugin\.daemon\.(handing_out|due_timer|pacing)"),
        ("adding", r"tidegate\.plugin\.daemon\.(small_adds|streams?|admission|engine)\."),
        ("event loop", r"^(asyncio|selectors|base_events|events|selector_events)"),
    ),
)


def task_of(thread: str, frames: Sequence[str], rules: Rules) -> str:
    """The task of a sample."""
    for task, pattern in rules.threads:
        if re.match(pattern, thread):
            return task
    for frame in reversed(frames):
        for task, pattern in rules.frames:
            if re.search(pattern, frame):
                return task
    return next((task for task, pattern in rules.otherwise if re.match(pattern, thread)), REST)


def divided(times: Mapping[int, ThreadTime], stacks: Stacks) -> dict[Stack, float]:
    """Microseconds of each stack in user code: a thread's time by its samples, one stack without any.

    Samples of unknown threads (0) share the remaining times.
    """
    by_thread: dict[int, Counter[Stack]] = {}
    for stack, count in stacks.items():
        by_thread.setdefault(stack.tid if stack.tid in times else 0, Counter())[stack] += count
    found: dict[Stack, float] = {}
    for tid, time in times.items():
        samples = by_thread.get(tid, Counter())
        for stack, count in samples.items():
            found[stack] = found.get(stack, 0.0) + time.user_us * count / samples.total()
        if not samples:
            alone = Stack(tid, time.name, ())
            found[alone] = time.user_us
    return found


def by_task(times: Mapping[int, ThreadTime], stacks: Stacks, rules: Rules) -> dict[str, float]:
    """Microseconds by task, with those in the kernel, the largest first."""
    tasks = {KERNEL: sum(time.system_us for time in times.values())}
    for stack, us in divided(times, stacks).items():
        task = task_of(stack.thread, stack.frames, rules)
        tasks[task] = tasks.get(task, 0.0) + us
    return dict(sorted(tasks.items(), key=lambda pair: -pair[1]))


def room_of(frame: str) -> str:
    """The package of a frame, or of a Python function its module."""
    owner = frame.rpartition(".")[0]
    head, _, last = owner.rpartition(".")
    return head if last[:1].isupper() else owner


def short(frame: str) -> str:
    """``Class.method`` or ``module.function``."""
    return ".".join(frame.split(".")[-2:])


def doors(frames: Sequence[str]) -> list[str]:
    """The frames that enter another package than the one before, except those that only run tasks."""
    entered = []
    before = ""
    for frame in frames:
        room = room_of(frame)
        if room != before and not MACHINERY.match(frame):
            entered.append(short(frame))
        before = room
    return entered


def thread_group(name: str) -> str:
    """The name of a pool's threads, without the numbers of each."""
    return re.sub(r"[-#:]?\d+(-\d+)*$", "", name).rstrip("-") or name


def flame(
    name: str, times: Mapping[int, ThreadTime], stacks: Stacks, *, divisor: float, least: float
) -> Frame:
    """The tree of a flame graph, in microseconds a message: groups of threads, then packages by their entry.

    ``divisor``: the number of messages. A branch below ``least`` of the whole joins its parent.
    """
    root = Frame(name=name, value=0.0)
    system_us = sum(time.system_us for time in times.values())
    whole = divided(times, stacks)
    total = sum(whole.values()) + system_us
    for stack, us in whole.items():
        _put(root, [thread_group(stack.thread), *doors(stack.frames)], us / divisor)
    _put(root, [KERNEL], system_us / divisor)
    _prune(root, least * total / divisor)
    return root


def _put(root: Frame, path: Sequence[str], value: float) -> None:
    at = root
    at.value += value
    for name in path:
        below = next((child for child in at.children if child.name == name), None)
        if below is None:
            below = Frame(name=name, value=0.0)
            at.children.append(below)
        below.value += value
        at = below


def _prune(frame: Frame, least: float) -> None:
    frame.children = sorted(
        (child for child in frame.children if child.value >= least), key=lambda child: -child.value
    )
    frame.value = round(frame.value, 2)
    for child in frame.children:
        _prune(child, least)
