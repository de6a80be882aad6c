"""`make sim`: many histories on all cores, or one again.

    python -m tests.sim --seeds 10000            # new seeds each time; the first one is printed
    python -m tests.sim --replay 4711 --trace    # the history of a seed, with everything that happens
    python -m tests.sim --replay build/sim/4711.json

Exit codes: 0 all held, 1 one failed, 2 the command line makes no sense.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

from tests.sim.campaign import Campaign
from tests.sim.generator import FAULTS, generate
from tests.sim.history import History
from tests.sim.player import play
from tests.sim.report import command, details, explain, summary

KEPT = Path("build/sim")
_EXPLAINED = 3  # failures of a campaign that are made small; of the others there is the command


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description="Simulate histories of brokers and daemons."
    )
    parser.add_argument("--seeds", type=int, default=1_000, metavar="N", help="how many histories (1000)")
    parser.add_argument(
        "--first", type=int, metavar="SEED", help="the first seed; a new one each time if not given"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no history after so long")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (all cores)"
    )
    parser.add_argument(
        "--faults",
        default=",".join(FAULTS),
        metavar="KIND,…",
        help=f"kinds of faults to draw, of {', '.join(FAULTS)} (all)",
    )
    parser.add_argument("--replay", metavar="SEED|FILE", help="run one history: of a seed, or a file")
    parser.add_argument("--trace", action="store_true", help="with --replay: print everything that happens")
    parser.add_argument("--no-shrink", action="store_true", help="do not make failing histories smaller")
    chosen = parser.parse_args(arguments)
    faults = FAULTS if chosen.faults == "all" else tuple(chosen.faults.split(","))
    unknown = set(faults) - set(FAULTS)
    if unknown:
        print(f"sim: --faults knows no {', '.join(sorted(unknown))}, of {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    if chosen.replay is not None:
        try:
            history = _history(chosen.replay, faults)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"sim: {chosen.replay} is no history: {error}", file=sys.stderr)
            return 2
        if history is None:
            print(f"sim: {chosen.replay} is neither a seed nor the file of a history", file=sys.stderr)
            return 2
        return _replay(history, trace=chosen.trace)
    if chosen.seeds < 1 or chosen.jobs < 1:
        print("sim: --seeds and --jobs are 1 or more", file=sys.stderr)
        return 2
    first = secrets.randbits(32) if chosen.first is None else chosen.first
    campaign = Campaign(first, chosen.seeds, chosen.jobs, chosen.seconds, faults)
    campaign.run(print)
    print(summary(campaign))
    for failed in campaign.failures[:_EXPLAINED]:
        print(explain(failed, KEPT, shrinks=not chosen.no_shrink))
    for failed in campaign.failures[_EXPLAINED:]:
        print(command(failed, KEPT))
    return 1 if campaign.failures else 0


def _history(text: str, faults: tuple[str, ...]) -> History | None:
    if text.isdecimal():
        return generate(int(text), faults)
    path = Path(text)
    return History.load(path) if path.is_file() else None


def _replay(history: History, *, trace: bool) -> int:
    outcome = play(history, print if trace else None)
    print(details(outcome))
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
