"""How late and how early messages arrive at a consumer, through a real broker with each tracker.

Producer and consumer are processes with Pulsar's client. Messages go evenly at the rate, with delays drawn
evenly from 1 to 10 s: both the near tier and the way through the daemon take part. The client compares the
return of ``receive`` with the payload's deliver_at: one machine, one clock.

The broker's JVM still compiles: messages of the first ``WARM_UP_S`` have a percentile of their own. Early,
lost and duplicated messages count for the whole run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import DeadlineError
from bench.harness.stats import quantiles
from bench.harness.trackers import BUCKET, BUCKET_STRICT, IN_MEMORY, IN_MEMORY_STRICT, OURS, TRACKERS
from bench.pulsar import receipts
from bench.pulsar.stand import PROCESS_START_MS, Stand, now_ms

RATES_PER_S = (20, 1000)
SECONDS, SECONDS_QUICK = 30, 8
WARM_UP_S, WARM_UP_QUICK_S = 15, 4
DELAY_MS = (1_000, 10_000)
PATIENCE_S = 30.0
P99_TARGET_MS = 20.0


def schedule(rate_per_s: int, seconds: int, start_ms: int, seed: int) -> NDArray[np.int64]:
    """(sequence, send_at_ms, deliver_at_ms) rows: even sends, delays drawn evenly from ``DELAY_MS``."""
    count = rate_per_s * seconds
    sequence = np.arange(count)
    send_at_ms = start_ms + sequence * 1000 // rate_per_s
    delay_ms = np.random.default_rng(seed).integers(*DELAY_MS, count, endpoint=True)
    return np.column_stack([sequence, send_at_ms, send_at_ms + delay_ms]).astype(np.int64)


def record(
    recorder: Recorder, scenario: str, peer: str, records: NDArray[np.void], sent: int, warm_up: int
) -> NDArray[np.float64]:
    """One round's metrics from a consumer's log; the first ``warm_up`` messages are separate.

    Returns the others' lateness in ms.
    """
    of_all = receipts.lateness_ms(records)
    is_warm = records["sequence"] >= warm_up
    lateness = of_all[is_warm]
    distinct = len(np.unique(records["sequence"]))
    p50, p99 = (float(value) for value in np.quantile(lateness, [0.5, 0.99]))
    off_p99 = float(np.quantile(np.abs(lateness), 0.99))

    def add(title: str, unit: str, value: float, target: float | None = None, headline: bool = True) -> None:
        metric = recorder.metric(scenario, title, unit, target=target, headline=headline)
        metric.add(peer, round(float(value), 2))

    add("arrived early", "messages", int((of_all < 0).sum()), 0)
    add("earliest", "ms before due", max(0.0, -float(of_all.min())))
    add("lateness p50", "ms", p50)
    add("lateness p99", "ms", p99, P99_TARGET_MS)
    add("lateness max", "ms", float(lateness.max()))
    add("off by p99, early or late", "ms", off_p99)
    add("lateness p99 of the warm-up", "ms", float(np.quantile(of_all[~is_warm], 0.99)))
    add("lost", "messages", sent - distinct, 0)
    add("duplicated", "messages", len(records) - distinct, headline=False)
    return lateness


def run(plan: Plan, recorder: Recorder) -> None:
    """Run every rate on every tracker in each round."""
    seconds = SECONDS_QUICK if plan.quick else SECONDS
    warm_up_s = WARM_UP_QUICK_S if plan.quick else WARM_UP_S
    recorder.parameters |= {"seconds": seconds, "warm_up_s": warm_up_s}
    recorder.parameters |= {"delay_min_ms": DELAY_MS[0], "delay_max_ms": DELAY_MS[1]}
    lateness: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for number, peers in plan.rounds():
        for peer in peers:
            with Stand(TRACKERS[peer]) as stand:
                for rate in RATES_PER_S:
                    scenario = f"{rate:,} due a second"
                    topic = f"lateness-{rate}"
                    consumer = stand.consumer(topic)
                    rows = schedule(rate, warm_up_s + seconds, now_ms() + PROCESS_START_MS, seed=number)
                    stand.send(topic, rows)
                    try:
                        consumer.wait_received(len(rows), DELAY_MS[1] / 1000 + PATIENCE_S)
                    except DeadlineError as error:
                        plan.say(f"{peer}: {error}")
                    consumer.stop()
                    found = record(recorder, scenario, peer, consumer.records(), len(rows), rate * warm_up_s)
                    lateness.setdefault((scenario, peer), []).append(found)
                    plan.say(
                        f"round {number + 1} {peer}, {scenario}: {(found < 0).sum():,} of {len(found):,} "
                        f"early, p99 {np.quantile(found, 0.99):.1f} ms, max {found.max():.1f} ms"
                    )
    for (scenario, peer), rounds in lateness.items():
        recorder.curve(scenario, peer, "ms", quantiles(np.concatenate(rounds)))


BENCH = Bench(
    name="lateness",
    measures="how early and how late messages arrive, 20 and 1,000 due a second, real broker and clients",
    takes="25 min",
    takes_quick="5 min",
    peers=(OURS, IN_MEMORY, BUCKET, IN_MEMORY_STRICT, BUCKET_STRICT),
    runs=3,
    runs_quick=1,
    run=run,
)
