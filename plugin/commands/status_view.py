"""``tidegate status`` for people: a line for each subscription, in columns, the worst first.

Invariant: no name is cut or broken: names come last in their line, however long.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from tidegate.plugin.commands.pace import pace_text
from tidegate.plugin.commands.status_rows import (
    Sort,
    State,
    bypassed_names,
    in_order,
    log_is_behind,
    state_of,
)
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import duration
from tidegate.plugin.shared.shown import one_line, shown
from tidegate.plugin.shared.sizes import bytes_in_words
from tidegate.plugin.shared.topics import short_topic

_NO_CREDIT = (
    "its broker takes no more for now: there are no consumers, or they do not keep up, or do not acknowledge"
)
_NO_BROKER = (
    "no broker: nothing of it is read. No consumer has come since its topic was loaded, "
    "or another daemon's broker has the topic"
)
_NO_COMPACTIONS = (
    "DAMAGE: RocksDB cannot read a table, so it compacts nothing and the data directory grows. "
    "Look at the disk; stop the daemon, move the data directory away, start it with an empty one "
    "on a good disk"
)


@dataclass(frozen=True)
class View:
    """The user's wishes. everything: idle subscriptions, too; slices: those of each subscription."""

    sort: Sort = Sort.WORST
    everything: bool = False
    slices: bool = False


def render(answer: dict[str, Any], console: Console, view: View | None = None) -> None:
    """Print an answer. One that breaks the schema raises Python's own exceptions."""
    daemon, totals = answer["daemon"], answer["totals"]
    state = "ready" if daemon["ready"] else f"NOT READY: {'; '.join(daemon['not_ready'])}"
    say(console, f"{daemon['product']}, up {_duration(daemon['uptime_seconds'])}, {state}")
    for broker in answer["brokers"]:
        name = shown(broker["name"])
        say(console, f"broker {name} ({broker['product']}) connected, {counted(broker['streams'], 'stream')}")
    if not answer["brokers"]:
        say(console, "no broker is connected")
    for line in _bypassed(answer.get("bypassed")):  # absent from an older daemon
        say(console, line)
    for line in _paced(answer.get("paced")):  # absent from an older daemon
        say(console, line)
    if "attached" in answer:
        say(console, attachment_line(answer["attached"]))
    say(
        console,
        f"{totals['held']:,} held, {totals['in_flight']:,} in flight, "
        f"{counted(totals['slices_in_memory'], 'slice')} in memory, {totals['slices_on_disk']} on disk, "
        f"{bytes_in_words(totals['memory_bytes'])} memory, {bytes_in_words(totals['disk_bytes'])} disk, "
        f"{totals['uncommitted_entries']:,} not durable yet",
    )
    damage = _damage(totals)
    if damage:
        say(console, damage)
    if totals.get("store_compactions_disabled"):  # absent from an older daemon
        say(console, _NO_COMPACTIONS)
    if moved_bytes := totals.get("damaged_bytes"):
        say(
            console,
            "DAMAGE: the data directory could not be read, and was begun anew; what was in it "
            f"({bytes_in_words(moved_bytes)}) is in its folder damaged. "
            "Look at the disk, then delete the folder",
        )
    for line in _subscriptions(answer, view or View()):
        say(console, line)
    for line in _scalable(answer.get("scalable"), daemon["now_ms"]):  # absent from an older daemon
        say(console, line)
    if answer["subscriptions_omitted"]:
        say(console, f"… and {answer['subscriptions_omitted']:,} subscriptions more")


def _bypassed(bypassed: dict[str, Any] | None) -> list[str]:
    """A line for each dispatcher that bypasses Tidegate, and one for all without a name."""
    if bypassed is None:
        return []
    lines = [
        f"BYPASSED: {shown(one['topic'])}:{shown(one['subscription'])} at {shown(one['broker'])}: "
        f"Tidegate does not have its {one['delayed']:,} delayed messages: {shown(one['reason'])}"
        for one in bypassed["named"]
    ]
    more = bypassed["dispatchers"] - len(lines)
    return [*lines, f"BYPASSED: and {more:,} dispatchers more"] if more > 0 else lines


def _paced(paced: dict[str, Any] | None) -> list[str]:
    """A line for each subscription that waits on purpose, and one for all without a name."""
    if paced is None:
        return []
    lines = [
        (
            f"PAUSED: {shown(one['topic'])}:{shown(one['subscription'])}: "
            "nothing leaves until tidegate resume"
            if one["paused"]
            else f"PACE: {shown(one['topic'])}:{shown(one['subscription'])}: {pace_text(one)}"
        )
        for one in paced["named"]
    ]
    more = paced["subscriptions"] - len(lines)
    return [*lines, f"PACE: and {more:,} subscriptions more"] if more > 0 else lines


def _scalable(scalable: dict[str, Any] | None, now_ms: int) -> list[str]:
    """A line for each scalable topic's subscription, over all its segments, and one for the rest."""
    if scalable is None:
        return []
    lines = [
        f"{shown(one['topic'])}:{shown(one['subscription'])}  {one['held']:,} held, "
        f"{one['in_flight']:,} in flight, in {one['segments']:,} segments, "
        f"next due {_next_due(one['next_due_ms'], now_ms)}"
        for one in scalable["topics"]
    ]
    if scalable["omitted"]:
        lines.append(f"… and {scalable['omitted']:,} scalable topics more")
    return lines


def _subscriptions(answer: dict[str, Any], view: View) -> list[str]:
    """The lines of all subscriptions, each with its remarks below it."""
    bypassed = bypassed_names(answer)
    rows = [
        _Row(one, state_of(one, bypassed), answer, view)
        for one in in_order(answer["subscriptions"], view.sort, bypassed)
    ]
    listed = [row for row in rows if view.everything or row.state != State.IDLE]
    said = _logs([one["index_log"] for one in answer["subscriptions"] if one.get("index_log")])
    if listed:
        head = (
            "state",
            "overdue",
            "next due",
            "held",
            "in flight",
            _broker("broker", answer),
            "subscription",
        )
        table = [head, *(row.cells for row in listed)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        said.append(_line(head, widths))
        said += [line for row in listed for line in (_line(row.cells, widths), *row.below)]
    if any(row.state == State.DISCONNECTED for row in listed):
        said.append(_NO_BROKER)
    if idle := len(rows) - len(listed):
        said.append(f"{counted(idle, 'idle subscription')} without a message: --all shows them")
    return said


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    """One line of the table: the state and the name to the left, figures to the right."""
    state, *figures, broker, name = cells
    right = [one.rjust(width) for one, width in zip(figures, widths[1:], strict=False)]
    brokers = [broker.ljust(widths[-2])] if widths[-2] else []
    return "  ".join([state.ljust(widths[0]), *right, *brokers, name])


def _broker(text: str, answer: dict[str, Any]) -> str:
    """The cell of a broker; empty if one broker has all."""
    return text if len(answer["brokers"]) > 1 else ""


def _logs(logs: list[dict[str, Any]]) -> list[str]:
    """A line for all index logs."""
    if not logs:
        return []
    behind = [log["lag_seconds"] for log in logs if log["lag_seconds"]]
    state = f"{len(behind):,} behind, by {_duration(max(behind))} at most" if behind else "up to date"
    return [f"{len(logs):,} index logs, {state}"]


def say(console: Console, line: str) -> None:
    """Print one unbroken line: a terminal wraps it by itself."""
    console.print(Text(one_line(line)), soft_wrap=True)


def attachment_line(files: dict[str, Any]) -> str:
    """The line that says if a Pulsar home is attached, and if not, how to attach it."""
    home = f"{files['pulsar_home']} (Pulsar {files['pulsar_version']})"
    if files["attached"]:
        return f"{home} is attached"
    how = "is not attached" if files["state"] == "detached" else "is attached in part only"
    return f"{home} {how}: run tidegate attach {files['pulsar_home']}"


class _Row:
    """One subscription, every cell as text. below: remarks and slices, indented."""

    def __init__(self, one: dict[str, Any], state: State, answer: dict[str, Any], view: View) -> None:
        self.state = state
        self.cells = (
            str(state),
            _duration(one["overdue_ms"] / 1_000) if one["overdue_ms"] else "-",
            _next_due(one["next_due_ms"], answer["daemon"]["now_ms"]),
            _held(one),
            f"{one['in_flight']:,}",
            _broker(shown(one["broker"] or "-"), answer),
            f"{shown(short_topic(one['topic']))}:{shown(one['subscription'])}",
        )
        log = one.get("index_log")
        self.below = [
            *([f"  {_NO_CREDIT}"] if one["credit"] == 0 and one["overdue_ms"] and not _is_paced(one) else []),
            *(f"  {line}" for line in _log(log) if view.everything or log_is_behind(log)),
        ]
        if view.slices:
            self.below += _slices(one)


def _held(one: dict[str, Any]) -> str:
    quota = one.get("quota")
    return f"{one['held']:,}" if quota is None else f"{one['held']:,} of {quota:,}"


def _slices(one: dict[str, Any]) -> list[str]:
    said = [f"  slices are {_width(one)} wide, {one['staged']:,} entries in none on disk yet"]
    said += [
        f"  {_instant(part['start_ms'])}, {_duration(part['width_ms'] / 1_000)}: "
        f"{part['entries']:,} entries, {one_line(part['state'])}"
        for part in one["slices"]
    ]
    if one["slices_omitted"]:
        said.append(f"  … {one['slices_omitted']} more slices")
    return said


def _is_paced(one: dict[str, Any]) -> bool:
    pace = one.get("pace")  # absent from an older daemon
    return pace is not None and any(pace.values())


def _instant(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a client may ask for a time long after the calendar's end
        return "beyond year 9999" if at_ms > 0 else "before year 1"


def _next_due(next_due_ms: int | None, now_ms: int) -> str:
    if next_due_ms is None:
        return "-"
    away_s = (next_due_ms - now_ms) / 1_000
    return f"in {_duration(away_s)}" if away_s > 0 else f"{_duration(-away_s)} ago"


def _width(one: dict[str, Any]) -> str:
    text = duration(one["slice_width_ms"])
    # An older daemon does not send it.
    return f"{text} auto" if one.get("slice_width_auto") else text


def _damage(totals: dict[str, Any]) -> str:
    """The losses of the disk since the start; empty if there are none."""
    found = [
        f"{totals[name]:,} {what}"
        for name, what in (
            ("lost_commits", "commits lost"),
            ("blocks_quarantined", "blocks damaged"),
            ("corrupt_records", "stored values damaged"),
        )
        if totals.get(name)  # an older daemon lacks some of these counts
    ]
    if not found:
        return ""
    return f"DAMAGE: {', '.join(found)}; their messages are read from the topics again. Look at the disk"


def _log(log: dict[str, Any] | None) -> list[str]:
    """The place of the index log and its lag; nothing if there is no log."""
    if log is None:
        return []
    if not log["home"]:
        return [one_line(f"no index log is written: {log['failure']}")]
    if log["failure"]:
        state = f"{_duration(log['lag_seconds'])} behind: {log['failure']}"
    elif log["lag_seconds"]:
        state = f"{_duration(log['lag_seconds'])} and {bytes_in_words(log['waiting_bytes'])} behind"
    else:
        state = "up to date"
    where = "" if log["ledger_id"] is None else f" ledger {log['ledger_id']}"
    return [one_line(f"index log in {log['home']}{where}, {state}")]


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
