"""The alert rules: each links to the runbook, and promtool finds them right on series of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.daemons import assert_one_line, run
from tests.support.prometheus import promtool
from tidegate.plugin.telemetry.alerts import alerts, as_groups, as_yaml

ROOT = Path(__file__).parents[3]
BROKER, DAEMON, QUIET = (
    'job="pulsar", instance="broker"',
    'job="tidegate", instance="daemon"',
    'job="tidegate", instance="quiet"',
)
QUIET_BROKER = 'job="pulsar", instance="quiet"'
HOLDS = "The disk of the daemon at daemon has lost something"


def of(name: str, bad: str, good: str, more: str = "") -> dict[str, str]:
    """Values of a metric at a daemon with the fault, and at one without."""
    return {f"{name}{{{DAEMON}{more}}}": bad, f"{name}{{{QUIET}{more}}}": good}


def at_broker(name: str, bad: str, good: str, more: str = "") -> dict[str, str]:
    """The same at brokers."""
    return {f"{name}{{{BROKER}{more}}}": bad, f"{name}{{{QUIET_BROKER}{more}}}": good}


def late(name: str, where: str) -> dict[str, str]:
    """A histogram of which 2 % of the values are between 1 and 5 s, then one whose values all are small."""
    at, quiet = (BROKER, QUIET_BROKER) if where == "broker" else (DAEMON, QUIET)
    rows = {'le="0.05"': 50, 'le="1.0"': 98, 'le="5.0"': 100, 'le="+Inf"': 100}
    bad = {f"{name}_bucket{{{at}, {le}}}": f"0+{step}x60" for le, step in rows.items()}
    return bad | {f"{name}_bucket{{{quiet}, {le}}}": "0+100x60" for le in rows}


TOPIC = ', topic="persistent://public/default/orders", subscription="billing"'


def waiting(bad: str, good: str) -> dict[str, str]:
    """A broker's tracked messages, of which three are handed out and two settle."""
    prefix = "pulsar_delayed_tidegate_"
    return (
        at_broker(f"{prefix}tracked_entries", f"{bad}x60", f"{good}x60", TOPIC)
        | at_broker(f"{prefix}handed_out_entries", "3x60", "3x60", TOPIC)
        | at_broker(f"{prefix}settling_entries", "2x60", "2x60", TOPIC)
    )


# Series, one minute apart, with the fault and without; the summary once the rule fires.
CASES: dict[str, tuple[dict[str, str], str]] = {
    "TidegateDown": (
        of("up", "0x60", "1x60"),
        "The daemon at daemon does not answer: far messages wait for it",
    ),
    "TidegateDisconnected": (
        at_broker("pulsar_delayed_tidegate_connected", "0x60", "1x60", TOPIC),
        "1 subscriptions of the broker broker have no daemon",
    ),
    "TidegateBypassed": (
        of("tidegate_bypassed_dispatchers", "2x60", "0x60"),
        "2 dispatchers have another tracker than Tidegate's: their messages may come early",
    ),
    "TidegateEarly": (
        at_broker("pulsar_delayed_tidegate_early_entries", "3x60", "0x60", TOPIC),
        "The broker broker has handed out 3 messages early",
    ),
    "TidegateNotReady": (
        of("tidegate_ready", "0x60", "1x60"),
        "The daemon at daemon is not ready; /readyz says why",
    ),
    "TidegateNoBroker": (
        of("tidegate_brokers", "0x60", "1x60"),
        "No broker is connected to the daemon at daemon",
    ),
    "TidegateDamage": (of("tidegate_damaged_bytes", "9x60", "0x60"), HOLDS),
    "TidegateDamage lost": (of("tidegate_lost_commits", "1x60", "0x60"), HOLDS),
    "TidegateDamage blocks": (of("tidegate_quarantined_blocks", "1x60", "0x60"), HOLDS),
    "TidegateDamage store": (of("tidegate_store_compactions_disabled", "1x60", "0x60"), HOLDS),
    "TidegateDamage records": (of("tidegate_corrupt_records_total", "0+1x60", "7x60"), HOLDS),
    "TidegateDiskLow": (
        of("tidegate_disk_free_bytes", f"{1 << 30}x60", f"{3 << 30}x60")
        | of("tidegate_disk_bytes", f"{2 << 30}x60", f"{2 << 30}x60"),
        "1GiB are free on the disk of the daemon at daemon",
    ),
    "TidegateDiskLow least": (
        of("tidegate_disk_free_bytes", f"{32 << 20}x60", f"{65 << 20}x60")
        | of("tidegate_disk_bytes", "1000x60", "1000x60"),
        "32MiB are free on the disk of the daemon at daemon",
    ),
    "TidegateOverdue": (
        of("tidegate_overdue_seconds", "90x60", "9x60"),
        "A subscription at daemon is overdue by 1m 30s",
    ),
    "TidegateLateHandOut": (
        late("pulsar_delayed_tidegate_lateness_seconds", "broker"),
        "1 % of the messages at broker are late by 3s",
    ),
    "TidegateLatePush": (
        late("tidegate_lateness_seconds", "daemon"),
        "The daemon at daemon gives 1 % of its entries to the broker late by 3s",
    ),
    "TidegateReadingPaused": (
        at_broker("pulsar_delayed_tidegate_paused", "1x60", "0x60", TOPIC),
        "The broker broker has stopped reading 1 subscriptions",
    ),
    "TidegateNoCredit": (
        of("tidegate_streams_without_credit", "2x60", "2x60")
        | of("tidegate_subscriptions_paced", "0x60", "1x60"),
        "Consumers of 2 subscriptions at daemon do not keep up",
    ),
    "TidegateQuota": (
        waiting("106", "105") | at_broker("pulsar_delayed_tidegate_quota_entries", "100x60", "100x60", TOPIC),
        "1 subscriptions of the broker broker have more messages waiting than their quota",
    ),
    "TidegateQuota none": (
        waiting("106", "106") | at_broker("pulsar_delayed_tidegate_quota_entries", "100x60", "0x60", TOPIC),
        "1 subscriptions of the broker broker have more messages waiting than their quota",
    ),
    "TidegateIndexLogFailing": (
        of("tidegate_index_logs_failing", "1x60", "0x60"),
        "Index logs of the daemon at daemon are not written",
    ),
    "TidegateIndexLogFailing behind": (
        of("tidegate_index_log_lag_seconds", "61x60", "60x60"),
        "Index logs of the daemon at daemon are not written",
    ),
    "TidegateSlowDisk": (
        late("tidegate_durable_lag_seconds", "daemon"),
        "1 % of the frames at daemon take 3s until they are durable",
    ),
    "TidegateReadPause": (
        of("tidegate_read_pause_seconds_total", "0+30x60", "0+3x60"),
        "daemon reads nothing for 50% of the time",
    ),
    "TidegateRestarts": (
        of("process_start_time_seconds", "0+60x60", "1 1 1 1 2 2 2 2 3+0x52"),
        "The daemon at daemon has started 15 times within 15 minutes",
    ),
    "TidegatePaused": (
        of("tidegate_subscriptions_paused", "4x90", "0x90"),
        "4 subscriptions of the daemon at daemon have been paused for an hour",
    ),
}


def test_the_runbook_has_each_alert() -> None:
    runbook = (ROOT / "docs/runbook.md").read_text("utf-8")
    rows = re.findall(r'^\| <a id="(\w+)"></a>(\w+) \|', runbook, re.MULTILINE)
    assert [name for name, _ in rows] == [one.name for one in alerts()] == [name for _, name in rows]
    for one in as_groups(alerts())["groups"][0]["rules"]:
        page, anchor = one["annotations"]["runbook_url"].split("#")
        assert (ROOT / page).read_text("utf-8").count(f'<a id="{anchor}"></a>') == 1


def test_each_alert_has_its_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == {one.name for one in alerts()}


def test_the_file_in_yaml_says_what_json_says() -> None:
    printed = run("metrics", "rules", "--job", 'a "job"', "--runbook-url", "https://docs.example.com/r.html")
    as_json = run(
        "metrics", "rules", "--json", "--job", 'a "job"', "--runbook-url", "https://docs.example.com/r.html"
    )
    groups = json.loads(as_json.stdout)
    assert yaml.safe_load(printed.stdout) == groups
    down = groups["groups"][0]["rules"][0]
    assert down["expr"] == r'up{job="a \"job\""} == 0'
    assert down["annotations"]["runbook_url"] == "https://docs.example.com/r.html#TidegateDown"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "rules.yml"
    assert run("metrics", "rules", "--out", str(out)).stdout == ""
    assert out.read_text("utf-8") == run("metrics", "rules").stdout
    assert [each.name for each in tmp_path.iterdir()] == ["rules.yml"]
    assert_one_line(run("metrics", "rules", "--out", str(tmp_path)), "is no file", 2)
    assert_one_line(run("metrics", "rules", "--out", str(tmp_path / "none" / "a")), "No such file", 2)
    assert_one_line(run("metrics", "rules", "--job", "a\nb"), "--job has unprintable characters", 2)


@pytest.mark.prometheus
def test_promtool_finds_them_right(tmp_path: Path) -> None:
    """Each fires for the instance with the fault and for no other, not before its time."""
    (tmp_path / "rules.yml").write_text(as_yaml(as_groups(alerts()), "a test"))
    checked = promtool("check", "rules", tmp_path / "rules.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": list(map(unit_test, CASES))}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    tested = promtool("test", "rules", tmp_path / "tests.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def unit_test(case: str) -> dict[str, Any]:
    """The case as promtool reads it."""
    series, summary = CASES[case]
    tested, _, _ = case.partition(" ")
    (rule,) = (one for one in as_groups(alerts())["groups"][0]["rules"] if one["alert"] == tested)
    (alert,) = (one for one in alerts() if one.name == tested)
    job, instance = ("pulsar", "broker") if BROKER in next(iter(series)) else ("tidegate", "daemon")
    fires = {
        "exp_labels": {"job": job, "instance": instance, **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": summary},
    }
    at_m = 20 if alert.for_s < 1_200 else alert.for_s // 60 + 5
    looks = [{"eval_time": f"{at_m}m", "alertname": alert.name, "exp_alerts": [fires]}]
    if alert.for_s:
        looks.append({"eval_time": f"{alert.for_s - 1}s", "alertname": alert.name, "exp_alerts": []})
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": looks,
    }
