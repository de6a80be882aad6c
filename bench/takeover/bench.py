"""The fate of the messages, and the cost, when a topic changes its owner on a cluster of two brokers.

A subscription has many delayed messages, most due tomorrow; meanwhile twenty a second are published with a
delay of some seconds, delivered and acknowledged. Then the owner is unloaded, killed with its daemon,
restarted (followed by the other one), paused beyond its session, or its daemon loses its disk; then the topic
moves ten times, with two resets of the cursor. After that a sample of the messages that have waited
throughout falls due. With few messages the owner is also killed amid publishing at full speed. The clock runs
from the new owner's word that it has topic and consumer.
"""

from __future__ import annotations

import shlex

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.trackers import BUCKET, BUCKET_STRICT, IN_MEMORY, IN_MEMORY_STRICT, OURS
from bench.takeover.course import Course, Round
from bench.takeover.faults import KILL
from bench.takeover.place import Place
from bench.takeover.traffic import PER_S
from tidegate.plugin.drill.stands import trackers as stands
from tidegate.plugin.errors import UserError

MESSAGES, MESSAGES_QUICK = (100_000, 1_000_000), (20_000,)
OURS_ALONE_ABOVE = 1_000_000
"""With more, a round takes most of an hour: the others are done for whoever names peers."""
NO_LOG = "tidegate, no log"
PEERS = (OURS, NO_LOG, IN_MEMORY, BUCKET)
TRACKER_OF = {
    OURS: stands.OURS,
    NO_LOG: stands.NO_INDEX_LOG,
    IN_MEMORY: "in-memory",
    BUCKET: "bucket",
    IN_MEMORY_STRICT: "in-memory-strict",
    BUCKET_STRICT: "bucket-strict",
}
ROUNDS = {
    NO_LOG: Round(fault_rereads=2),
    IN_MEMORY: Round(fault_rereads=5, move_rereads=True),
    IN_MEMORY_STRICT: Round(fault_rereads=5, move_rereads=True),
}
KILLED_ALONE = Round(faults=(KILL,), moves=False, fault_rereads=1)
"""A tracker that reads ten million at each fault and each move takes hours a round."""


def run(plan: Plan, recorder: Recorder) -> None:
    """Each number of messages, and each peer on a cluster of its own."""
    sizes = plan.entries or (MESSAGES_QUICK if plan.quick else MESSAGES)
    recorder.parameters |= {"messages": ", ".join(f"{far:,}" for far in sizes), "due_per_s": PER_S}
    for far in sizes:
        for peer in plan.peers:
            if far > OURS_ALONE_ABOVE and peer != OURS and len(plan.peers) == len(PEERS):
                recorder.note(f"{far:,} messages: {OURS} alone (`--only {shlex.quote(peer)}` has {peer}).")
                continue
            round_ = ROUNDS.get(peer, Round())
            if far > OURS_ALONE_ABOVE and round_.move_rereads:
                round_ = KILLED_ALONE
                recorder.note(
                    f"{far:,} messages: {peer} reads all of them again at each fault, so one alone was done: "
                    f"{KILL.title}."
                )
            try:
                with Place(TRACKER_OF[peer], heap_mib=512 if far <= 1_000_000 else 1_536) as place:
                    Course(plan, recorder, peer, place, far, round_).run()
            except (BenchError, UserError) as error:
                # The others may have taken most of an hour; the measurements of this one stay, too.
                recorder.note(f"{peer}, {far:,} messages, was not finished: {error}")
                plan.say(recorder.notes[-1])
    if not recorder.metrics:
        raise BenchError(f"nothing could be measured: {'; '.join(recorder.notes)}")


BENCH = Bench(
    name="takeover",
    measures="a topic changes its owner in a cluster: first due message, entries read again, repeats, cost",
    takes="55 min",
    takes_quick="18 min",
    peers=PEERS,
    more_peers=(IN_MEMORY_STRICT, BUCKET_STRICT),
    runs=1,
    runs_quick=1,
    run=run,
    takes_entries=True,
)
