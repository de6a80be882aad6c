"""A campaign and a failure, for a person."""

from __future__ import annotations

from pathlib import Path

from tests.sim.campaign import Campaign, Failure
from tests.sim.generator import generate
from tests.sim.history import History
from tests.sim.player import Outcome, play
from tests.sim.shrink import shrink

_SHRINK_ATTEMPTS = 600


def summary(campaign: Campaign) -> str:
    """A few lines over all histories."""
    repeats = ", ".join(f"{cause} {count:,}" for cause, count in campaign.repeats.most_common())
    skipped = ", ".join(f"{name} {count:,}" for name, count in campaign.skipped.most_common())
    return "\n".join(
        (
            f"sim: {campaign.done} histories, {campaign.steps:,} steps in {campaign.elapsed_s:.0f} s "
            f"({campaign.steps_per_s:,.0f}/s), {campaign.virtual_ms / 3_600_000:.1f} virtual hours",
            f"sim: {campaign.published:,} messages published, {campaign.deliveries:,} received, "
            f"{campaign.resets:,} resets; kept deleted over a reset by Pulsar itself: {campaign.forgiven:,}",
            f"sim: came again: {repeats or 'nothing'}",
            f"sim: steps that could not be done: {skipped or 'none'}",
            f"sim: {len(campaign.failures)} failed" if campaign.failures else "sim: all held",
        )
    )


def details(outcome: Outcome) -> str:
    """The result of one history."""
    repeats = ", ".join(f"{cause} {count}" for cause, count in outcome.repeats.most_common())
    text = (
        f"{outcome.steps:,} steps, {outcome.virtual_ms / 1_000:.1f} virtual s, {outcome.published} published,"
        f" {outcome.deliveries} received; came again: {repeats or 'nothing'}"
    )
    return f"{text}\nall held" if outcome.passed else f"{text}\n{outcome.details}\n{outcome.failure}"


def explain(failed: Failure, folder: Path, *, shrinks: bool) -> str:
    """The failure, one command that replays it, and where the smallest history is that shows it."""
    history = generate(failed.seed, failed.faults)
    lines = [f"\nseed {failed.seed}: {failed.outcome.failure}"]
    if shrinks:
        history = smallest(history, failed.outcome)
        lines[0] = f"\nseed {failed.seed}: {play(history).failure}"
    path = folder / f"{failed.seed}.json"
    lines.append(_replay_of(history, path))
    lines.append(path.read_text(encoding="utf-8"))
    return "\n".join(lines)


def command(failed: Failure, folder: Path) -> str:
    """One line: the command that replays the whole history, and of which seed it is."""
    history = generate(failed.seed, failed.faults)
    return f"seed {failed.seed}, {_replay_of(history, folder / f'{failed.seed}.json')}"


def _replay_of(history: History, path: Path) -> str:
    """Saves the history."""
    history.save(path)
    return f"replay: .venv/bin/python -m tests.sim --replay {path} --trace"


def smallest(history: History, outcome: Outcome, attempts: int = _SHRINK_ATTEMPTS) -> History:
    """The smallest history that fails at the same place."""
    return shrink(history, lambda candidate: play(candidate).place == outcome.place, attempts)
