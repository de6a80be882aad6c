"""One workload with slices from a minute to the whole span, and with the automatic width.

Entries are due evenly over 7 days. A small staging budget makes a small backlog spill as often as a large
one: what counts is a spill's entries in a slice, and the spills. Each width is filled, killed -9, popped up
to the middle of a slice, killed -9 and opened again. One more fill compares the peak of blocks with the
prediction of `tidegate tune` for such a rush.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.worker_process import measured
from bench.tuning.worker import START_MS, Setting, batches
from tidegate.index import ENTRY_BYTES

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SPAN_MS = 7 * DAY_MS
BUDGETS = 16
"""So many times the staging budget is what is added."""
ENTRIES, ENTRIES_QUICK = 2_000_000, 200_000
BATCHES = 200
AUTO = "auto"
MOST_BLOCKS = "most blocks while adding"
WORKER = "bench.tuning.worker"
TOO_NARROW_FOR_QUICK = "1 min"
WIDTHS_MS = {
    "1 min": MINUTE_MS,
    "10 min": 10 * MINUTE_MS,
    "1 h": HOUR_MS,
    "6 h": 6 * HOUR_MS,
    "1 d": DAY_MS,
    "7 d": SPAN_MS,
    "30 d": 30 * DAY_MS,
}


def measure(setting: Setting, peer: str, recorder: Recorder) -> dict[str, float]:
    """One width: every phase on a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        arguments = (str(Path(name) / "data"), setting.model_dump_json())
        filled = measured(WORKER, "fill", *arguments)
        popped = measured(WORKER, "pop", *arguments)
        again = measured(WORKER, "reopen", *arguments, str(popped["stop_ms"]))
        crowded = measured(WORKER, "crowd", str(Path(name) / "crowd"), setting.model_dump_json())
    scenario = f"{setting.entries:,} entries over 7 days"
    for title, unit, value in (
        ("time to add, until all is in slices", "s", filled["seconds"]),
        ("peak memory, adding", "MiB", filled["memory_mib"]),
        ("packed blocks", "B an entry", filled["bytes_an_entry"]),
        ("blocks", "blocks", filled["blocks"]),
        ("longest call at a slice boundary", "ms", popped["boundary_ms"]),
        ("longest pop of 10,000, catching up", "ms", popped["catching_up_ms"]),
        ("peak memory, popping", "MiB", popped["memory_mib"]),
        ("kill -9, opened, first due entry popped", "s", again["first_pop_s"]),
    ):
        recorder.metric(scenario, title, unit).add(peer, round(value, 3))
    most = recorder.metric(scenario, MOST_BLOCKS, "blocks", headline=False)
    most.add(peer, int(crowded["blocks_max"]))
    recorder.metric(scenario, "kill -9, opened", "s", headline=False).add(peer, round(again["opened_s"], 3))
    lost = setting.entries - popped["popped"] - again["held"]
    recorder.metric(scenario, "lost or handed out early", "entries", target=0).add(
        peer, lost + again["early"]
    )
    return filled


def modelled(recorder: Recorder, setting: Setting, peers: Sequence[str]) -> None:
    """Note the model's error for the peak of blocks, at each width: all entries arrive at once."""
    from tidegate.pipeline.tune.calibrate import Played, Trace, measure_costs  # noqa: PLC0415

    due_ms = np.concatenate([one.deliver_at_ms for one in batches(setting)])
    played = Played(Trace(np.full(len(due_ms), START_MS - DAY_MS), due_ms), setting.options())
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        costs = measure_costs(Path(name))
    (most,) = [one for one in recorder.metrics if one.title == MOST_BLOCKS]
    told = []
    for peer in peers:
        said = played.activity(WIDTHS_MS[peer], costs).blocks_max
        seen = float(np.median(most.samples[peer]))
        told.append(f"{peer} {said:,} of {seen:,.0f} ({100 * (said - seen) / seen:+.0f} %)")
    recorder.note(
        "most blocks while adding, as tidegate tune's model says and as they were: " + ", ".join(told)
    )


def run(plan: Plan, recorder: Recorder) -> None:
    """Every width in turn, in each round."""
    count = ENTRIES_QUICK if plan.quick else ENTRIES
    batch, staging_bytes = count // BATCHES, count // BUDGETS * ENTRY_BYTES
    recorder.parameters |= {"entries": count, "batch": batch, "staging_bytes": staging_bytes}
    if plan.quick:
        recorder.note(f"{TOO_NARROW_FOR_QUICK} is left out: so few entries would be in blocks of one or two")
    recorder.axis = "slice width (h)"
    chosen: list[float] = []
    for number, peers in plan.rounds():
        for peer in peers:
            if plan.quick and peer == TOO_NARROW_FOR_QUICK:
                continue
            setting = Setting(
                entries=count,
                batch=batch,
                span_ms=SPAN_MS,
                staging_bytes=staging_bytes,
                width_ms=WIDTHS_MS.get(peer),
            )
            filled = measure(setting, peer, recorder)
            if peer == AUTO:
                chosen.append(filled["width_ms"])
            plan.say(
                f"round {number + 1}, {peer}: {filled['seconds']:.1f} s to add, {filled['blocks']:,} blocks, "
                f"{filled['bytes_an_entry']:.2f} B an entry"
            )
    fixed = [
        peer for peer in plan.peers if peer != AUTO and not (plan.quick and peer == TOO_NARROW_FOR_QUICK)
    ]
    if fixed:
        whole = Setting(
            entries=count, batch=batch, span_ms=SPAN_MS, staging_bytes=staging_bytes, width_ms=HOUR_MS
        )
        modelled(recorder, whole, fixed)
    places = {peer: WIDTHS_MS[peer] for peer in plan.peers if peer != AUTO}
    recorder.positions = {peer: width_ms / HOUR_MS for peer, width_ms in places.items()}
    if chosen:
        recorder.positions[AUTO] = float(np.median(chosen)) / HOUR_MS
    if chosen:
        recorder.note(
            "auto began with 1 h and came to " + ", ".join(sorted({f"{ms / HOUR_MS:g} h" for ms in chosen}))
        )


BENCH = Bench(
    name="tuning",
    measures="slice widths from a minute to the whole span, and auto: memory, bytes, boundaries, recovery",
    takes="2 min",
    takes_quick="15 s",
    peers=(*WIDTHS_MS, AUTO),
    runs=3,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
)
