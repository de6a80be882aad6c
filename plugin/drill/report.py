"""The results of drills as JSON and as a table for people. Pure functions of the results.

A drill's object is documented in docs/drills.md; within one ``schema`` fields are only added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidegate.plugin.checks import Lateness
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.stands.trackers import TITLES
from tidegate.plugin.drill.verdict import LatenessMs, Recovery, Verdict
from tidegate.plugin.shared.durations import in_words

SCHEMA = 1
_DASH = "–"


def as_json(result: Result) -> dict[str, Any]:
    """One drill: counts are sums over its rounds, times are the worst round's."""
    verdicts = result.verdicts
    causes: Counter[str] = Counter()
    for one in verdicts:
        causes.update(one.repeated_by_cause)
    return {
        "schema": SCHEMA,
        "drill": result.drill,
        "tracker": result.tracker,
        "verdict": "pass" if result.passed else "fail",
        "reasons": reasons_of(result),
        **_counts(verdicts),
        "repeated_by_cause": dict(causes),
        "earliest_ms": _rounded(worst(verdicts, lambda one: one.earliest_ms)),
        "oldest_ack_repeated_ms": _rounded(worst(verdicts, lambda one: one.oldest_ack_repeated_ms)),
        "first_due_s": _rounded(worst(verdicts, lambda one: one.first_due_s)),
        "first_due_after_usable_s": _rounded(worst(verdicts, lambda one: one.first_due_after_usable_s)),
        "down_s": _rounded(worst(verdicts, lambda one: one.down_s)),
        "gap_s": _rounded(worst(verdicts, lambda one: one.gap_s)),
        "lateness_ms": _worst_lateness(verdicts),
        "read_again": worst(verdicts, lambda one: one.read_again),
        "rounds": [_round(one) for one in verdicts],
    }


def reasons_of(result: Result) -> list[str]:
    """The reasons for its failure, a sentence each, without duplicates."""
    said = [*result.failures, *(reason for one in result.verdicts for reason in one.reasons)]
    return list(dict.fromkeys(said))


def worst(verdicts: Sequence[Verdict], value: Callable[[Verdict], float | None]) -> float | None:
    """The largest of the known values."""
    return max((known for one in verdicts if (known := value(one)) is not None), default=None)


def as_table(results: Sequence[Result]) -> RenderableType:
    """All results, a line for each drill and tracker, and below them the reasons for failures."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black")
    several = len({one.tracker for one in results}) > 1
    # A column for order is of interest when there are violations, or when consumers promise order
    # (--key-shared).
    disorder = any(one.out_of_order for result in results for one in result.verdicts)
    for title in ("drill", *(("tracker",) if several else ()), "", "rounds"):
        table.add_column(title, no_wrap=True)
    told = ("sent", "lost", "early", "again", *(("out of order",) if disorder else ()))
    for title in (*told, "gap", "first due", "p50", "p99", "max", "read again"):
        table.add_column(title, justify="right", no_wrap=True)
    for result in results:
        shown = as_json(result)
        late = shown["lateness_ms"] or {}
        verdict = Text("pass", "bold green") if result.passed else Text("FAIL", "bold red")
        table.add_row(
            escape(result.drill),
            *((escape(TITLES.get(result.tracker, result.tracker)),) if several else ()),
            verdict,
            str(len(result.verdicts)),
            f"{shown['sent']:,}",
            _bad(shown["lost"]),
            _bad(shown["early"]),
            f"{shown['repeated']:,}",
            *((f"{shown['out_of_order']:,}",) if disorder else ()),
            seconds(shown["gap_s"]),
            seconds(shown["first_due_s"]),
            *(milliseconds(late.get(name)) for name in ("p50", "p99", "max")),
            _DASH if shown["read_again"] is None else f"{shown['read_again']:,}",
        )
    failed = [one for one in results if not one.passed]
    lines = [Text(f"\n{one.drill}: {'; '.join(reasons_of(one))}", "red") for one in failed]
    return Group(table, *lines)


def seconds(value: float | None) -> str:
    """With the significant digits."""
    return _DASH if value is None else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def milliseconds(value: float | None) -> str:
    """With the significant digits."""
    return _DASH if value is None else in_words(value)


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    names = (
        "sent",
        "received",
        "lost",
        "early",
        "repeated",
        "sent_twice",
        "unconfirmed",
        "out_of_order",
        "not_due",
    )
    return {name: sum(getattr(one, name) for one in verdicts) for name in names}


def _round(verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": "pass" if verdict.passed else "fail",
        "reasons": verdict.reasons,
        **_counts([verdict]),
        "repeated_by_cause": verdict.repeated_by_cause,
        "oldest_ack_repeated_ms": _rounded(verdict.oldest_ack_repeated_ms),
        "first_due_s": _rounded(verdict.first_due_s),
        "first_due_after_usable_s": _rounded(verdict.first_due_after_usable_s),
        "down_s": _rounded(verdict.down_s),
        "gap_s": _rounded(verdict.gap_s),
        "lateness_ms": _lateness(verdict.lateness_ms),
        "entries_read": verdict.entries_read,
        "read_again": verdict.read_again,
        "not_due_held": verdict.not_due_held,
        "lateness_by_wait_ms": {wait.value: _split(one) for wait, one in verdict.waits.items()},
        "lateness_by_kind_ms": {kind.name.lower(): _split(one) for kind, one in verdict.kinds.items()},
        "planned": {kind.name.lower(): count for kind, count in verdict.planned.items()},
        "faults": [_fault(one, verdict.start_us) for one in verdict.recoveries],
    }


def _fault(one: Recovery, start_us: int) -> dict[str, Any]:
    strike = one.strike
    return {
        "what": strike.what,
        "seen": strike.evidence or None,
        "at_s": round((strike.begin_us - start_us) / 1e6, 3),
        "done_after_s": _since(strike.begin_us, strike.done_us),
        "usable_after_s": _since(strike.begin_us, strike.back_us),
        "first_due_s": _rounded(one.first_due_s),
        "first_due_after_usable_s": _rounded(one.first_due_after_usable_s),
        "due_meanwhile": one.due_meanwhile,
        "received_meanwhile": one.received_meanwhile,
        "waited_ms": _split(one.waited),
    }


def _split(lateness: Lateness) -> dict[str, float]:
    """Lateness of a part of the messages, in milliseconds."""
    return {
        "count": lateness.count,
        "p50": round(lateness.p50_ms, 3),
        "p99": round(lateness.p99_ms, 3),
        "max": round(lateness.max_ms, 3),
    }


def _worst_lateness(verdicts: Sequence[Verdict]) -> dict[str, float] | None:
    known = [vars(one.lateness_ms) for one in verdicts if one.lateness_ms is not None]
    if not known:
        return None
    return {name: max(one[name] for one in known) for name in ("p50", "p99", "p99_9", "max")}


def _lateness(lateness: LatenessMs | None) -> dict[str, float] | None:
    return None if lateness is None else dict(vars(lateness))


def _since(begin_us: int, end_us: int) -> float | None:
    return None if end_us < begin_us else round((end_us - begin_us) / 1e6, 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _bad(count: int) -> Text:
    return Text(f"{count:,}", "bold red" if count else "default")
