"""The rounds of drills as Markdown: for the docs a line a drill and tracker, for the README one a tracker.

Pure functions. Times: the rounds' median and worst; counts: all rounds.
"""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Sequence

from bench.drills.cells import Batch, Cell
from tidegate.plugin.drill.stands.trackers import TITLES

BEGIN = "<!-- drills: begin, written by `python -m bench report` -->"
END = "<!-- drills: end -->"
_WIDTH = 120
_CAUSES = {
    "in_flight": "in flight",
    "unpersisted_acknowledgement": "unpersisted",
    "ack_hole": "**ack hole**",
    "rewound": "rewound",
    "tracker": "**unexplained**",
}
_TITLES = (
    "drill", "tracker", "rounds", "failed", "lost", "early", "came again", "usable again after, s",
    "first due after, s", "longest gap, s", "late p99, ms", "read again",
)  # fmt: skip


def by_drill(cells: Sequence[Cell], batches: Sequence[Batch]) -> str:
    """A line a cell."""
    lines = [_row(_TITLES), "|---|---|" + "--:|" * (len(_TITLES) - 2)]
    for cell in cells:
        times = cell.times
        cells_of_line = (
            f"`{cell.drill}`",
            _title(cell.tracker),
            f"{cell.rounds:,}",
            f"{cell.failed:,}",
            *(f"{cell.counts.get(name, 0):,}" for name in ("lost", "early")),
            _again(cell),
            *(_spread(times.get(name, [])) for name in ("down_s", "first_due_s", "gap_s", "p99_ms")),
            _spread(times.get("read_again", [])),
        )
        lines.append(_row(cells_of_line))
    return "\n".join(
        [*lines, "", _told(sum(cell.rounds for cell in cells), batches), "", *_reasons(cells)]
    ).strip()


def by_tracker(cells: Sequence[Cell]) -> str:
    """A line a tracker: the total of all its drills."""
    titles = ("tracker", "drills", "rounds", "messages", "lost", "early", "came again unexplained")
    lines = [_row(titles), "|---|" + "--:|" * (len(titles) - 1)]
    for tracker in dict.fromkeys(cell.tracker for cell in cells):
        mine = [cell for cell in cells if cell.tracker == tracker]
        unexplained = sum(cell.repeated.get(cause, 0) for cell in mine for cause in ("tracker", "ack_hole"))
        counts = [sum(cell.counts.get(name, 0) for cell in mine) for name in ("sent", "lost", "early")]
        rounds = sum(cell.rounds for cell in mine)
        lines.append(
            _row([_title(tracker), *(f"{value:,}" for value in (len(mine), rounds, *counts, unexplained))])
        )
    return "\n".join(lines)


def _told(rounds: int, batches: Sequence[Batch]) -> str:
    known = [batch for batch in batches if batch.rounds]
    if not known:
        return ""
    days = sorted({batch.started_at[:10] for batch in known})
    loads = [batch.load_1min for batch in known]
    machines = ", ".join(dict.fromkeys(f"{batch.cpu}, {batch.cores} cores" for batch in known))
    counts: Counter[str] = Counter()
    for batch in known:
        counts[batch.revision] += batch.rounds
    revisions = ", ".join(f"{revision} ({count})" for revision, count in counts.items())
    busy = f"{min(loads):g}" if min(loads) == max(loads) else f"{min(loads):g} to {max(loads):g}"
    told = sum(batch.rounds for batch in known)
    part = "" if told == rounds else f", {told:,} of them"
    runs = f"{len(known)} runs" if told == rounds else f"{len(known)} runs that are known"
    text = (
        f"Times: median / worst of the rounds. {rounds:,} rounds{part} in {runs}, {days[0]}"
        f"{'' if len(days) == 1 else f' to {days[-1]}'}, {machines}; load when they began: {busy} (above the "
        f"number of cores: times are upper limits); revisions, with their rounds: {revisions}."
    )
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _reasons(cells: Sequence[Cell]) -> list[str]:
    """The reasons for failed rounds of ours; the others are up to a second early, by design."""
    return [
        textwrap.fill(
            f"- `{cell.drill}`, {_title(cell.tracker)}: {reason} ({count} of {cell.rounds} rounds)",
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for cell in cells
        for reason, count in cell.reasons.items()
        if "came early" not in reason
    ]


def _again(cell: Cell) -> str:
    told = [f"{cell.repeated[cause]:,} {word}" for cause, word in _CAUSES.items() if cell.repeated.get(cause)]
    return ", ".join(told) or "0"


def _title(tracker: str) -> str:
    return TITLES.get(tracker, tracker)


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    middle, worst = _number(statistics.median(known)), _number(max(known))
    return middle if middle == worst else f"{middle} / {worst}"


def _number(value: float) -> str:
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
