"""A dashboard for Grafana, as the JSON that it imports.

Invariants: every panel asks Prometheus through the variable ``datasource``, so one file fits every Grafana;
panels of a daemon look at ``$daemon``, those of a broker at ``$broker``; a panel by subscription shows ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

UID = "tidegate"
TITLE = "Tidegate"
SCHEMA_VERSION = 39
"""That of Grafana 11, which newer ones raise at the import."""
_COLUMNS = 24
_DAEMON = 'instance=~"$daemon"'
_BROKER = 'instance=~"$broker", subscription!=""'
"""Pulsar adds up the shim's metrics by topic, too."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """One query of Prometheus; legend: a template of Grafana."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel. unit: a name of Grafana's (s, bytes, short, ops). bad_from: red from this value on."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat"] = "timeseries"
    columns: int = 8
    bad_from: float | None = None


def _stat(title: str, about: str, expr: str, *, unit: str = "short", bad_from: float | None = None) -> Panel:
    return Panel(title, about, unit, (Query(expr, "{{instance}}"),), "stat", 4, bad_from)


def _line(title: str, about: str, unit: str, *queries: tuple[str, str]) -> Panel:
    return Panel(title, about, unit, tuple(Query(*each) for each in queries))


def _of(name: str) -> str:
    return f"tidegate_{name}{{{_DAEMON}}}"


def _rate(name: str) -> str:
    return f"rate({_of(name)}[$__rate_interval])"


def _quantile(share: float, name: str, whose: str) -> str:
    rate = f"rate({name}_bucket{{{whose}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (instance, le) ({rate}))"


_BY_NAME = "{{topic}} {{subscription}}"
ROWS: dict[str, list[Panel]] = {
    "Health": [
        _stat(
            "Not ready", "Daemons that are not ready: /readyz says why.", f"1 - {_of('ready')}", bad_from=1
        ),
        _stat("Brokers", "Connected brokers.", _of("brokers")),
        _stat("Bypassed", "Dispatchers of another tracker.", _of("bypassed_dispatchers"), bad_from=1),
        _stat(
            "Early",
            "Messages handed out early, by the broker's clock: must stay 0.",
            f"sum by (instance) (pulsar_delayed_tidegate_early_entries{{{_BROKER}}})",
            bad_from=1,
        ),
        _stat(
            "Overdue subscriptions",
            "Served ones without a pace, overdue by a second or more.",
            _of("subscriptions_overdue"),
            bad_from=1,
        ),
        _stat("Paused subscriptions", "Nothing of them leaves.", _of("subscriptions_paused")),
    ],
    "Delivery": [
        _line(
            "Lateness at hand-out",
            "From the due time to the hand-out to a consumer, by the broker's clock.",
            "s",
            (_quantile(0.5, "pulsar_delayed_tidegate_lateness_seconds", _BROKER), "{{instance}} p50"),
            (_quantile(0.99, "pulsar_delayed_tidegate_lateness_seconds", _BROKER), "{{instance}} p99"),
        ),
        _line(
            "Lateness at the daemon",
            "From the due time to the DUE frame; 0 within the horizon.",
            "s",
            (_quantile(0.99, "tidegate_lateness_seconds", _DAEMON), "{{instance}} p99"),
        ),
        _line(
            "Longest overdue",
            "The longest time by which a served subscription without a pace is overdue.",
            "s",
            (_of("overdue_seconds"), "{{instance}}"),
        ),
        _line(
            "Entries in and out",
            "Entries that brokers add, and entries that become due.",
            "ops",
            (_rate("entries_added_total"), "{{instance}} added"),
            (_rate("entries_due_total"), "{{instance}} due"),
        ),
        _line(
            "Streams without credit",
            "Their brokers take no more for now: consumers do not keep up or do not acknowledge.",
            "short",
            (_of("streams_without_credit"), "{{instance}}"),
        ),
        _line(
            "Changes by request",
            "Messages in requests to cancel, release or reschedule, by outcome.",
            "ops",
            (f"sum by (instance, outcome) ({_rate('messages_changed_total')})", "{{instance}} {{outcome}}"),
        ),
    ],
    "Waiting messages": [
        _line(
            "Entries",
            "Held: the index answers for them. In flight: with a broker. Staged: in no slice on disk yet.",
            "short",
            (_of("entries_held"), "{{instance}} held"),
            (_of("entries_in_flight"), "{{instance}} in flight"),
            (_of("entries_staged"), "{{instance}} staged"),
        ),
        _line(
            "Fullest subscriptions",
            "Of those with series of their own (the setting metrics_subscriptions).",
            "short",
            (f"topk(10, {_of('subscription_entries_held')})", _BY_NAME),
        ),
        _line(
            "Most overdue subscriptions",
            "The worst have series of their own.",
            "s",
            (f"topk(10, {_of('subscription_overdue_seconds')})", _BY_NAME),
        ),
        _line(
            "Next due",
            "Time until the next entry of a subscription is due, the soonest ten; below 0 it is overdue.",
            "s",
            (f"bottomk(10, {_of('subscription_next_due_timestamp_seconds')} - time())", _BY_NAME),
        ),
        _line(
            "Most late by broker",
            "The time by which the first message that the broker has is overdue.",
            "s",
            (f"topk(10, pulsar_delayed_tidegate_overdue_seconds{{{_BROKER}}})", _BY_NAME),
        ),
        _line(
            "At the broker",
            "Tracked: the shim knows them. Near: due soon, on the broker's heap. Pending: not durable yet.",
            "short",
            *(
                (
                    f"sum by (instance) (pulsar_delayed_tidegate_{what}_entries{{{_BROKER}}})",
                    f"{{{{instance}}}} {what}",
                )
                for what in ("tracked", "near", "pending")
            ),
        ),
    ],
    "Durability": [
        _line(
            "Until durable",
            "From receiving a frame to its DURABLE, and the commits in it.",
            "s",
            (_quantile(0.99, "tidegate_durable_lag_seconds", _DAEMON), "{{instance}} p99"),
            (_quantile(0.99, "tidegate_commit_duration_seconds", _DAEMON), "{{instance}} commit p99"),
        ),
        _line(
            "Commits and persists",
            "By result.",
            "ops",
            (f"sum by (instance, result) ({_rate('commits_total')})", "{{instance}} commits {{result}}"),
            (f"sum by (instance, result) ({_rate('persists_total')})", "{{instance}} persists {{result}}"),
        ),
        _line(
            "Disk",
            "Files of the index, and free bytes beside them.",
            "bytes",
            (_of("disk_bytes"), "{{instance}} index"),
            (_of("disk_free_bytes"), "{{instance}} free"),
            (_of("journal_bytes"), "{{instance}} journal"),
        ),
        _line(
            "Damage",
            "What the disk has lost: all must stay 0.",
            "short",
            (_of("quarantined_blocks"), "{{instance}} blocks set aside"),
            (_of("lost_commits"), "{{instance}} lost commits"),
            (_of("damaged_bytes"), "{{instance}} bytes moved away"),
            (_of("store_compactions_disabled"), "{{instance}} no compactions"),
        ),
        _line(
            "Index logs",
            "Written here, and failing ones.",
            "short",
            (_of("index_logs"), "{{instance}} logs"),
            (_of("index_logs_failing"), "{{instance}} failing"),
        ),
        _line(
            "Index log lag",
            "Age of the oldest change that is not in its log yet.",
            "s",
            (_of("index_log_lag_seconds"), "{{instance}}"),
        ),
    ],
    "Daemon": [
        _line(
            "Processor",
            "Share of one core, and of the time without reading because spilling is behind.",
            "percentunit",
            (f"rate(process_cpu_seconds_total{{{_DAEMON}}}[$__rate_interval])", "{{instance}}"),
            (_rate("read_pause_seconds_total"), "{{instance}} reading paused"),
        ),
        _line(
            "Memory",
            "Of the process, and of the index in it.",
            "bytes",
            (f"process_resident_memory_bytes{{{_DAEMON}}}", "{{instance}} process"),
            (_of("memory_bytes"), "{{instance}} index"),
        ),
        _line(
            "Subscriptions and streams",
            "Known subscriptions, and streams that brokers have open.",
            "short",
            (_of("subscriptions"), "{{instance}} subscriptions"),
            (_of("streams"), "{{instance}} streams"),
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    """The dashboard, to be dumped as JSON."""
    return {
        "uid": UID,
        "title": TITLE,
        "description": "Delayed delivery: the daemons, and Tidegate's part of the brokers.",
        "tags": ["pulsar", "tidegate"],
        "schemaVersion": SCHEMA_VERSION,
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                _instances("daemon", "tidegate_ready"),
                _instances("broker", "pulsar_delayed_tidegate_connected"),
            ]
        },
        "panels": list(_panels()),
    }


def _instances(name: str, metric: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({metric}, instance)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in row:
            if x + panel.columns > _COLUMNS:
                x, y = 0, y + height
            height = 4 if panel.kind == "stat" else 8
            place = {"x": x, "y": y, "w": panel.columns, "h": height}
            made.append(_panel(panel, len(made) + 1, place))
            x += panel.columns
        y += height
    return made


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.bad_from is not None:
        steps = [{"value": None, "color": "green"}, {"value": panel.bad_from, "color": "red"}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "stat":
        options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    else:
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": one.expr, "legendFormat": one.legend}
            for at, one in enumerate(panel.queries)
        ],
    }
