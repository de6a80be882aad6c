"""``tidegate tide``: a histogram of due times, of one subscription, many, or all.

Invariant: an inexact figure is marked as such, with its bound.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.moments import utc
from tidegate.plugin.commands.options import Asked
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import in_words, milliseconds

_BAR = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate tide orders billing --span 1d --step 1h --json")(tide)


@with_groups
def tide(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]",
            help="persistent://public/default/ may be left out, * is anything; without: all topics.",
        ),
    ] = "*",
    subscription: Annotated[
        str, typer.Argument(metavar="[SUBSCRIPTION]", help="* is anything; without: all of them.")
    ] = "*",
    span: Annotated[
        str | None, typer.Option(help="How far to look, as in 1d [default: to the last message].")
    ] = None,
    step: Annotated[str | None, typer.Option(help="A bucket's width, as in 1h [default: fits 60].")] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            metavar="PER_SECOND",
            min=0.001,
            help="Say how late it gets if consumers take so many [default: as in their fastest minute "
            "of the last day].",
        ),
    ] = None,
    *,
    asked: Asked,
) -> None:
    """Count waiting messages by due time.

    Overdue messages are due and not acknowledged. Exit code 3: no daemon answers.
    """
    request: dict[str, Any] = {"what": "tide", "topic": topic, "subscription": subscription}
    request |= {"span_ms": _span(span, "--span"), "step_ms": _span(step, "--step")}
    answer = asked.reach().ask(request)
    with known_form():
        rate = drain or answer.get("drain_per_second")
        if rate:
            answer["forecast"] = forecast(answer, rate) | {"measured": drain is None}
        if asked.json_output:
            print(json.dumps(answer, indent=2))
            return
        for line in lines(answer):
            print(line)


def _span(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        value = milliseconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if value < 1:
        raise typer.BadParameter(f"{option} must be 1 ms or longer")
    return value


def forecast(answer: dict[str, Any], drain_per_second: float) -> dict[str, Any]:
    """The lateness of due messages at ``drain_per_second``, as an upper bound.

    It takes a whole bucket as due with its first message, and overdue messages, whose age is unknown, as due
    now. Without the messages after the last bucket, ``later``.
    """
    queued = float(answer["overdue"])
    now_ms = last_ms = answer["now_ms"]
    late_max_ms, late_max_at_ms = queued / drain_per_second * 1_000, now_ms
    drained_at_ms = now_ms + late_max_ms
    for bucket in answer["buckets"]:
        queued = max(0.0, queued - (bucket["from_ms"] - last_ms) / 1_000 * drain_per_second)
        last_ms = bucket["from_ms"]
        queued += bucket["entries"]
        if bucket["entries"]:
            late_ms = queued / drain_per_second * 1_000
            drained_at_ms = last_ms + late_ms
            if late_ms > late_max_ms:
                late_max_ms, late_max_at_ms = late_ms, last_ms
    return {
        "drain_per_second": drain_per_second,
        "late_max_ms": round(late_max_ms),
        "late_max_at_ms": late_max_at_ms,
        "drained_at_ms": round(drained_at_ms),
    }


def lines(answer: dict[str, Any]) -> list[str]:
    """An answer as text. Raises ``KeyError`` or ``TypeError`` if it breaks the schema."""
    buckets = answer["buckets"]
    most = max([answer["overdue"], answer["later"], *(one["entries"] for one in buckets), 1])
    said = [_line("overdue", answer["overdue"], most)]
    last = max((at for at, one in enumerate(buckets) if one["entries"]), default=-1)
    said += [_line(utc(one["from_ms"]), one["entries"], most) for one in buckets[: last + 1]]
    if answer["later"]:
        said.append(_line("later", answer["later"], most))
    entries, of = counted(answer["entries"], "message"), counted(answer["subscriptions"], "subscription")
    said.append(f"{entries} of {of}; times are UTC")
    if answer["inexact_entries"]:
        said.append(f"up to {answer['inexact_entries']:,} of them may be in a bucket nearby, or acknowledged")
    if answer["subscriptions_away"]:
        away = counted(answer["subscriptions_away"], "subscription")
        said.append(f"still being brought here, and not counted: {away}")
    if "forecast" in answer:
        late = answer["forecast"]
        what = "all but the later ones is" if answer["later"] else "all of this is"
        overdue = ", from now for what is overdue" if answer["overdue"] else ""
        measured = ", as in the fastest minute of the last day" if late.get("measured") else ""
        said.append(
            f"at {late['drain_per_second']:g} a second{measured}: "
            f"late by {in_words(late['late_max_ms'])} at most{overdue}, "
            f"around {utc(late['late_max_at_ms'])}; {what} taken by {utc(late['drained_at_ms'])}"
        )
    return said


def _line(label: str, entries: int, most: int) -> str:
    eighths = -(-entries * _BAR * 8 // most)
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return f"{label:<19}  {entries:>13,}  {bar}".rstrip()
