"""Checks of the daemon's own answers: its status, and the tide of all waiting messages. Pure.

``status`` is the answer described by ``docs/operations.md``; anything else raises ``KeyError`` or
``TypeError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.plugin.doctor.finding import Finding, Verdict, capped
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import in_words

EACH_MAX = 10
"""Findings of one check about subscriptions; the others are counted."""
BYPASS_DO = (
    "look which factory it names, set delayedDeliveryTrackerFactoryClassName=tidegate.pulsar.TrackerFactory, "
    "restart that broker"
)
FAR_DAYS = 3_650
_OVERDUE_MS = 5_000
_BEHIND_S = 60.0
_BYPASSED = "BYPASSED"


def daemon_findings(status: Mapping[str, Any], wheel_version: str) -> list[Finding]:
    """The findings about daemon, brokers and indexes."""
    return [
        *_bypassed(status["bypassed"], len(status["brokers"])),
        *_ready(status["daemon"]),
        _version(status["daemon"], wheel_version),
        _brokers(status["brokers"]),
        *_damage(status["totals"]),
        *_logs(status["subscriptions"]),
        *_overdue(status["subscriptions"]),
    ]


def far_findings(tide: Mapping[str, Any]) -> list[Finding]:
    """The finding about messages due beyond ``FAR_DAYS``, by a tide that spans so many days."""
    later = surely_later(tide)
    if not later:
        return []
    says = f"{counted(later, 'message', 'are')} due in more than {FAR_DAYS // 365} years"
    do = "see tidegate tide: a producer may give microseconds, or seconds for its milliseconds; correct it"
    return [Finding(check="delays", verdict=Verdict.WARNING, says=says, do=do)]


def surely_later(tide: Mapping[str, Any]) -> int:
    """The messages due after a tide's end, less those that may be acknowledged or due before."""
    return max(0, int(tide["later"]) - int(tide["inexact_entries"]))


def _bypassed(bypassed: Mapping[str, Any], brokers: int) -> list[Finding]:
    found = [
        Finding(
            check="tracker",
            verdict=Verdict.FAULT,
            says="BYPASSED: Tidegate does not have its "
            f"{counted(one['delayed'], 'delayed message')}: {one['reason']}",
            do=BYPASS_DO,
            topic=one["topic"],
            subscription=one["subscription"],
        )
        for one in bypassed["named"]
    ]
    more = bypassed["dispatchers"] - len(found)
    if more > 0:
        says = f"BYPASSED: {counted(more, 'dispatcher')} more"
        found.append(Finding(check="tracker", verdict=Verdict.FAULT, says=says, do=BYPASS_DO))
    if not found and brokers:
        says = "no connected broker has a dispatcher that bypasses Tidegate"
        found.append(Finding(check="tracker", verdict=Verdict.OK, says=says))
    return found


def _ready(daemon: Mapping[str, Any]) -> list[Finding]:
    reasons = [one for one in daemon["not_ready"] if not one.startswith(_BYPASSED)]
    do = "the reason says what to mend; docs/runbook.md has each"
    if reasons:
        return [Finding(check="ready", verdict=Verdict.FAULT, says=one, do=do) for one in reasons]
    if not daemon["ready"]:  # A bypass, which has findings of its own.
        return []
    says = f"the daemon is ready, up {in_words(daemon['uptime_seconds'] * 1_000)}"
    return [Finding(check="ready", verdict=Verdict.OK, says=says)]


def _version(daemon: Mapping[str, Any], wheel_version: str) -> Finding:
    if daemon["product"] == f"tidegate {wheel_version}":
        says = f"the daemon is {daemon['product']}, as this command"
        return Finding(check="version", verdict=Verdict.OK, says=says)
    says = f"the daemon is {daemon['product']}, this command {wheel_version}"
    do = "restart the daemon, with its shim: docs/upgrade.md"
    return Finding(check="version", verdict=Verdict.WARNING, says=says, do=do)


def _brokers(brokers: list[Mapping[str, Any]]) -> Finding:
    if brokers:
        said = ", ".join(f"{one['name']} ({one['product']})" for one in brokers[:EACH_MAX])
        more = f" and {len(brokers) - EACH_MAX:,} more" if len(brokers) > EACH_MAX else ""
        return Finding(check="brokers", verdict=Verdict.OK, says=f"connected: {said}{more}")
    do = "is the broker up, restarted since attach, of the daemon's user, and its tidegateSocket this one?"
    return Finding(check="brokers", verdict=Verdict.FAULT, says="no broker is connected", do=do)


def _damage(totals: Mapping[str, Any]) -> list[Finding]:
    names = {
        "lost_commits": "durable commits lost",
        "corrupt_records": "stored values damaged",
        "blocks_quarantined": "blocks set aside",
        "damaged_bytes": "bytes of a damaged store moved away",
    }
    said = [f"{totals[name]:,} {words}" for name, words in names.items() if totals.get(name)]
    if totals.get("store_compactions_disabled"):
        said.append("RocksDB compacts nothing, because it cannot read a table")
    if not said:
        says = "nothing damaged since the daemon's start"
        return [Finding(check="damage", verdict=Verdict.OK, says=says)]
    do = "look at the disk (kernel's log, SMART): docs/operations.md, when the disk has lost something"
    return [Finding(check="damage", verdict=Verdict.WARNING, says="; ".join(said), do=do)]


def _logs(subscriptions: list[Mapping[str, Any]]) -> list[Finding]:
    logged = [(one, one["index_log"]) for one in subscriptions if one["index_log"] is not None]
    found = []
    for one, log in logged:
        behind = log["lag_seconds"] >= _BEHIND_S
        if not log["failure"] and not behind:
            continue
        lag = f"{in_words(log['lag_seconds'] * 1_000)} behind, {log['waiting_bytes']:,} bytes wait"
        says = f"its index log is {lag}" + (f": {log['failure']}" if log["failure"] else "")
        found.append(
            Finding(
                check="index-log",
                verdict=Verdict.FAULT if behind else Verdict.WARNING,
                says=says,
                do="are the bookies up, or the store of objects? A topic that moves now is read again",
                topic=one["topic"],
                subscription=one["subscription"],
            )
        )
    if not found and logged:
        says = f"{counted(len(logged), 'index log', 'are')} written without delay"
        found.append(Finding(check="index-log", verdict=Verdict.OK, says=says))
    return capped(found, EACH_MAX)


def _overdue(subscriptions: list[Mapping[str, Any]]) -> list[Finding]:
    found = []
    for one in subscriptions:
        if one["broker"] is None or one["overdue_ms"] < _OVERDUE_MS:
            continue
        pace = one["pace"] or {}
        verdict = Verdict.NOTE if pace.get("paused") else Verdict.WARNING
        if pace.get("paused"):
            do = "somebody paused it: tidegate resume"
        elif one["credit"] == 0:
            do = "its consumers do not keep up, or do not acknowledge: see unackedMessages in Pulsar"
        else:
            do = "docs/runbook.md, messages come late"
        found.append(
            Finding(
                check="overdue",
                verdict=verdict,
                says=f"its first message is overdue by {in_words(one['overdue_ms'])}",
                do=do,
                topic=one["topic"],
                subscription=one["subscription"],
            )
        )
    if not found:
        says = f"no served subscription is overdue by {_OVERDUE_MS // 1_000} s"
        found.append(Finding(check="overdue", verdict=Verdict.OK, says=says))
    return capped(found, EACH_MAX)
