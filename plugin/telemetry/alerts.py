"""Alert rules for Prometheus, and their form as a rules file.

Invariants: the runbook has an anchor of each alert's name; an expression keeps ``instance``, so that an alert
names its daemon or broker; no expression depends on the number of subscriptions with series of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

GROUP = "tidegate"
JOB = "tidegate"
RUNBOOK = "docs/runbook.md"
_MINUTE_S = 60
_LEAST_FREE_BYTES = 64 << 20
"""As the doctor's: twice the daemon's default of staged memory."""
_WHERE = "by (job, instance)"


@dataclass(frozen=True)
class Alert:
    """One rule. for_s: it fires once ``expr`` has held so long. summary: a template of Prometheus."""

    name: str
    expr: str
    for_s: int
    severity: Literal["critical", "warning"]
    summary: str


def alerts(job: str = JOB) -> list[Alert]:
    """All rules, the gravest first; ``job``: of the daemons in Prometheus' configuration."""
    quoted = json.dumps(job, ensure_ascii=False)
    return [
        Alert(
            "TidegateDown",
            f"up{{job={quoted}}} == 0",
            _MINUTE_S,
            "critical",
            "The daemon at {{ $labels.instance }} does not answer: far messages wait for it",
        ),
        Alert(
            "TidegateDisconnected",
            f'count {_WHERE} (pulsar_delayed_tidegate_connected{{subscription!=""}} == 0) > 0',
            _MINUTE_S,
            "critical",
            "{{ $value }} subscriptions of the broker {{ $labels.instance }} have no daemon",
        ),
        Alert(
            "TidegateBypassed",
            "tidegate_bypassed_dispatchers > 0",
            _MINUTE_S,
            "critical",
            "{{ $value }} dispatchers have another tracker than Tidegate's: their messages may come early",
        ),
        Alert(
            "TidegateEarly",
            f'sum {_WHERE} (pulsar_delayed_tidegate_early_entries{{subscription!=""}}) > 0',
            0,
            "critical",
            "The broker {{ $labels.instance }} has handed out {{ $value }} messages early",
        ),
        Alert(
            "TidegateNotReady",
            "tidegate_ready == 0",
            _MINUTE_S,
            "critical",
            "The daemon at {{ $labels.instance }} is not ready; /readyz says why",
        ),
        Alert(
            "TidegateNoBroker",
            "tidegate_brokers == 0",
            5 * _MINUTE_S,
            "critical",
            "No broker is connected to the daemon at {{ $labels.instance }}",
        ),
        Alert(
            "TidegateDamage",
            "tidegate_damaged_bytes > 0 or tidegate_lost_commits > 0 or tidegate_quarantined_blocks > 0 "
            "or tidegate_store_compactions_disabled > 0 or increase(tidegate_corrupt_records_total[15m]) > 0",
            0,
            "critical",
            "The disk of the daemon at {{ $labels.instance }} has lost something",
        ),
        Alert(
            "TidegateDiskLow",
            "tidegate_disk_free_bytes < tidegate_disk_bytes "
            f"or tidegate_disk_free_bytes < {_LEAST_FREE_BYTES}",
            5 * _MINUTE_S,
            "critical",
            "{{ $value | humanize1024 }}B are free on the disk of the daemon at {{ $labels.instance }}",
        ),
        Alert(
            "TidegateOverdue",
            "tidegate_overdue_seconds > 10",
            2 * _MINUTE_S,
            "warning",
            "A subscription at {{ $labels.instance }} is overdue by {{ $value | humanizeDuration }}",
        ),
        Alert(
            "TidegateLateHandOut",
            f"histogram_quantile(0.99, sum {_le()} "
            "(rate(pulsar_delayed_tidegate_lateness_seconds_bucket[5m]))) > 1",
            5 * _MINUTE_S,
            "warning",
            "1 % of the messages at {{ $labels.instance }} are late by {{ $value | humanizeDuration }}",
        ),
        Alert(
            "TidegateLatePush",
            f"histogram_quantile(0.99, sum {_le()} (rate(tidegate_lateness_seconds_bucket[5m]))) > 1",
            5 * _MINUTE_S,
            "warning",
            "The daemon at {{ $labels.instance }} gives 1 % of its entries to the broker late by "
            "{{ $value | humanizeDuration }}",
        ),
        Alert(
            "TidegateReadingPaused",
            f'count {_WHERE} (pulsar_delayed_tidegate_paused{{subscription!=""}} > 0) > 0',
            _MINUTE_S,
            "warning",
            "The broker {{ $labels.instance }} has stopped reading {{ $value }} subscriptions",
        ),
        Alert(
            "TidegateNoCredit",
            "tidegate_streams_without_credit > 0 and tidegate_subscriptions_paced == 0",
            10 * _MINUTE_S,
            "warning",
            "Consumers of {{ $value }} subscriptions at {{ $labels.instance }} do not keep up",
        ),
        Alert(
            "TidegateQuota",
            f'count {_WHERE} (pulsar_delayed_tidegate_tracked_entries{{subscription!=""}} '
            "- pulsar_delayed_tidegate_handed_out_entries - pulsar_delayed_tidegate_settling_entries "
            "> (pulsar_delayed_tidegate_quota_entries > 0)) > 0",
            5 * _MINUTE_S,
            "warning",
            "{{ $value }} subscriptions of the broker {{ $labels.instance }} have more messages waiting than "
            "their quota",
        ),
        Alert(
            "TidegateIndexLogFailing",
            "tidegate_index_logs_failing > 0 or tidegate_index_log_lag_seconds > 60",
            5 * _MINUTE_S,
            "warning",
            "Index logs of the daemon at {{ $labels.instance }} are not written",
        ),
        Alert(
            "TidegateSlowDisk",
            f"histogram_quantile(0.99, sum {_le()} (rate(tidegate_durable_lag_seconds_bucket[5m]))) > 0.1",
            10 * _MINUTE_S,
            "warning",
            "1 % of the frames at {{ $labels.instance }} take {{ $value | humanizeDuration }} until they are "
            "durable",
        ),
        Alert(
            "TidegateReadPause",
            "rate(tidegate_read_pause_seconds_total[5m]) > 0.1",
            10 * _MINUTE_S,
            "warning",
            "{{ $labels.instance }} reads nothing for {{ $value | humanizePercentage }} of the time",
        ),
        Alert(
            "TidegateRestarts",
            f"changes(process_start_time_seconds{{job={quoted}}}[15m]) > 2",
            0,
            "warning",
            "The daemon at {{ $labels.instance }} has started {{ $value }} times within 15 minutes",
        ),
        Alert(
            "TidegatePaused",
            "tidegate_subscriptions_paused > 0",
            60 * _MINUTE_S,
            "warning",
            "{{ $value }} subscriptions of the daemon at {{ $labels.instance }} have been paused for an hour",
        ),
    ]


def _le() -> str:
    return "by (job, instance, le)"


def as_groups(each: list[Alert], runbook: str = RUNBOOK) -> dict[str, Any]:
    """The rules in the form of Prometheus' file; ``runbook``: the address of that page."""
    return {
        "groups": [
            {
                "name": GROUP,
                "rules": [
                    {
                        "alert": one.name,
                        "expr": one.expr,
                        **({"for": f"{one.for_s}s"} if one.for_s else {}),
                        "labels": {"severity": one.severity},
                        "annotations": {
                            "summary": one.summary,
                            "runbook_url": f"{runbook}#{one.name}",
                        },
                    }
                    for one in each
                ],
            }
        ]
    }


def as_yaml(groups: dict[str, Any], head: str) -> str:
    """The rules file. head: its first line, a comment."""
    lines = [f"# {head}", "groups:"]
    for group in groups["groups"]:
        lines += [f"  - name: {group['name']}", "    rules:"]
        for rule in group["rules"]:
            lines.append(f"      - alert: {rule['alert']}")
            for key, value in rule.items():
                if isinstance(value, dict):
                    lines.append(f"        {key}:")
                    lines += [f"          {name}: {_scalar(text)}" for name, text in value.items()]
                elif key == "expr":
                    lines += ["        expr: |-", f"          {value}"]
                elif key != "alert":
                    lines.append(f"        {key}: {value}")
    return "\n".join(lines) + "\n"


def _scalar(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)
