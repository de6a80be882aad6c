"""A finding: the verdict of one check, and the remedy.

Invariant: ``says`` and ``do`` are for people and hold no name chosen by a client, except from a broker or
daemon; names have fields of their own, unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdicts, worst first."""

    FAULT = "fault"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


_ORDER = {verdict: number for number, verdict in enumerate(Verdict)}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line, and one with the remedy ("" for none).

    check: a word, the same in each release. topic, subscription: names, if it is about one.
    """

    check: str
    verdict: Verdict
    says: str
    do: str = ""
    topic: str | None = None
    subscription: str | None = None


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, faults first; those of one verdict in their order."""
    return sorted(findings, key=lambda one: _ORDER[one.verdict])


def capped(findings: Sequence[Finding], most: int) -> list[Finding]:
    """The ``most`` worst of one check, and one for all others."""
    kept = worst_first(findings)
    left = kept[most:]
    if not left:
        return kept
    more = Finding(
        check=left[0].check, verdict=left[0].verdict, says=f"and {len(left):,} more like these", do=left[0].do
    )
    return [*kept[:most], more]
