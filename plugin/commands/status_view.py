"""``tidegate status`` for people: tables on a terminal that is wide enough, lines everywhere else.

Invariant: no name is cut or broken. A pipe, a file and a terminal too narrow for the table get a line for
each subscription, however long.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tidegate.plugin.commands.pace import pace_text
from tidegate.plugin.shared.durations import duration
from tidegate.plugin.shared.shown import one_line, shown

_ANY_WIDTH = 100_000
_NO_CREDIT = "its broker takes no more for now: consumers do not keep up, or do not acknowledge"
_NO_COMPACTIONS = (
    "DAMAGE: RocksDB cannot read a table, so it compacts nothing and the data directory grows. "
    "Look at the disk; stop the daemon, move the data directory away, start it with an empty one "
    "on a good disk"
)


def render(answer: dict[str, Any], console: Console) -> None:
    """Print an answer. If the answer does not follow the schema, Python's own exception."""
    daemon, totals = answer["daemon"], answer["totals"]
    state = "ready" if daemon["ready"] else f"NOT READY: {'; '.join(daemon['not_ready'])}"
    say(console, f"{daemon['product']}, up {_duration(daemon['uptime_seconds'])}, {state}")
    for broker in answer["brokers"]:
        name = shown(broker["name"])
        say(console, f"broker {name} ({broker['product']}) connected, {broker['streams']} streams")
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
        f"{totals['held']:,} held, {totals['in_flight']:,} in flight, {totals['staged']:,} staged, "
        f"{totals['slices_in_memory']} slices in memory, {totals['slices_on_disk']} on disk, "
        f"{_size(totals['memory_bytes'])} memory, {_size(totals['disk_bytes'])} disk, "
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
            f"({_size(moved_bytes)}) is in its folder damaged. Look at the disk, then delete the folder",
        )
    rows = [_Row(one, daemon["now_ms"]) for one in answer["subscriptions"]]
    if rows:
        _say_rows(rows, console)
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
    """A line for each subscription of a scalable topic, whose segments are added up, and one for the rest."""
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


def _say_rows(rows: list[_Row], console: Console) -> None:
    table = _table(rows)
    if not _fits(table, console):
        for line in (line for row in rows for line in row.lines()):
            say(console, line)
        return
    console.print(table)
    for row in rows:
        for remark in row.remarks:
            say(console, f"{row.topic}:{row.subscription}  {remark}")
        if row.slices:
            console.print(_slice_table(row))


def say(console: Console, line: str) -> None:
    """Print one line unbroken: a terminal wraps it by itself."""
    console.print(Text(one_line(line)), soft_wrap=True)


def attachment_line(files: dict[str, Any]) -> str:
    """The line that says if a Pulsar home is attached, and how to attach it if not."""
    home = f"{files['pulsar_home']} (Pulsar {files['pulsar_version']})"
    if files["attached"]:
        return f"{home} is attached"
    how = "is not attached" if files["state"] == "detached" else "is attached in part only"
    return f"{home} {how}: run tidegate attach {files['pulsar_home']}"


class _Row:
    """One subscription, every cell as text."""

    def __init__(self, one: dict[str, Any], now_ms: int) -> None:
        self.topic = shown(one["topic"])
        self.subscription = shown(one["subscription"])
        self.broker = shown(one["broker"] or "-")
        self.held = f"{one['held']:,}"
        self.in_flight = f"{one['in_flight']:,}"
        self.staged = f"{one['staged']:,}"
        self.overdue = _duration(one["overdue_ms"] / 1_000) if one["overdue_ms"] else "-"
        self.next_due = _next_due(one["next_due_ms"], now_ms)
        self.width = _width(one)
        self.remarks = [
            *([_NO_CREDIT] if one["credit"] == 0 and one["overdue_ms"] and not _is_paced(one) else []),
            *_log(one.get("index_log")),
        ]
        self.slices = [
            (
                _instant(part["start_ms"]),
                _duration(part["width_ms"] / 1_000),
                f"{part['entries']:,}",
                one_line(part["state"]),
            )
            for part in one["slices"]
        ]
        self.slices_omitted = int(one["slices_omitted"])

    def lines(self) -> list[str]:
        """The row as text, its slices indented below."""
        said = [
            f"{self.topic}:{self.subscription}  {self.held} held, {self.in_flight} in flight, "
            f"{self.staged} staged, overdue {self.overdue}, next due {self.next_due}, "
            f"slices {self.width}, broker {self.broker}",
            *(
                f"  {start}, {width}: {entries} entries, {state}"
                for start, width, entries, state in self.slices
            ),
        ]
        said += [f"  {remark}" for remark in self.remarks]
        if self.slices_omitted:
            said.append(f"  … {self.slices_omitted} more slices")
        return said


def _is_paced(one: dict[str, Any]) -> bool:
    pace = one.get("pace")  # absent from an older daemon
    return pace is not None and any(pace.values())


def _fits(table: Table, console: Console) -> bool:
    if not console.is_terminal:
        return False
    options = console.options.update(max_width=_ANY_WIDTH)
    return Measurement.get(console, options, table).maximum <= console.width


def _table(rows: list[_Row]) -> Table:
    table = Table(title="Subscriptions", title_justify="left")
    for name in ("topic", "subscription", "broker"):
        table.add_column(name)
    for name in ("held", "in flight", "staged", "overdue", "next due", "slices"):
        table.add_column(name, justify="right")
    for row in rows:
        names = (row.topic, row.subscription, row.broker)
        figures = (row.held, row.in_flight, row.staged, row.overdue, row.next_due, row.width)
        table.add_row(*map(Text, (*names, *figures)))
    return table


def _slice_table(row: _Row) -> Table:
    title = Text(f"Slices of {row.topic} {row.subscription}", style="table.title")
    table = Table(title=title, title_justify="left")
    table.add_column("from")
    for name in ("width", "entries"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for one in row.slices:
        table.add_row(*map(Text, one))
    if row.slices_omitted:
        table.add_row(f"… {row.slices_omitted} more", "", "", "")
    return table


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
        state = f"{_duration(log['lag_seconds'])} and {_size(log['waiting_bytes'])} behind"
    else:
        state = "up to date"
    where = "" if log["ledger_id"] is None else f" ledger {log['ledger_id']}"
    return [one_line(f"index log in {log['home']}{where}, {state}")]


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
