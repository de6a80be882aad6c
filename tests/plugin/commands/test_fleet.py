"""``tidegate fleet``: a line for each broker that is not well, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import assert_one_line, run
from tests.support.machines import Machines


@pytest.fixture
def machines(tmp_path: Path, home: Path) -> Iterator[Machines]:
    made = Machines(tmp_path / "machines", home)
    with made.serving():
        yield made


def subscription(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "topic": "persistent://public/default/orders", "subscription": name, "broker": "b", "held": 10,
        "pace": None, "overdue_ms": 0, "index_log": None,
    } | changes  # fmt: skip


def status(number: str, *subscriptions: dict[str, Any], **daemon: Any) -> tuple[int, dict[str, Any]]:
    return 200, {
        "daemon": {"id": number, "ready": True, "not_ready": []} | daemon,
        "totals": {"subscriptions": len(subscriptions), "held": 10 * len(subscriptions), "in_flight": 1},
        "paced": {"paused": sum(bool(one["pace"]) for one in subscriptions), "named": []},
        "bypassed": {"dispatchers": 0, "named": []},
        "subscriptions": list(subscriptions),
    }


def test_all_are_well_and_a_daemon_of_two_brokers_counts_once(machines: Machines) -> None:
    for machine, number in zip(machines.all, ("x", "x", "y"), strict=True):
        machine.status = status(number, subscription("billing"))
    done = run("fleet", **machines.environment)
    assert (done.returncode, done.stdout) == (0, "3 brokers, 2 daemons, 20 held: all are well\n")
    done = run("fleet", "--all", **machines.environment)
    assert [line.split()[-1] for line in done.stdout.splitlines()[:-1]] == [
        "state",
        "ready",
        "ready",
        "ready",
    ]


def test_those_that_are_not_well_are_named_with_the_reason(machines: Machines) -> None:
    first, second, third = machines.all
    late = subscription("late\x1b[31m", overdue_ms=90_000)
    first.status = status("x", subscription("fine"), late, ready=False, not_ready=["no room\n"])
    second.status = 503, {"reason": "no-daemon", "detail": "no daemon answers beside this broker"}
    done = run("fleet", **machines.environment)
    assert done.returncode == 1
    head, *rows, total = done.stdout.splitlines()
    assert head.split()[:2] == ["broker", "subscriptions"]
    assert [row.split()[0] for row in rows] == [first.name, second.name, third.name]
    assert "1 by 1.5 min" in rows[0]
    assert rows[0].endswith(r"NOT READY: no room\n")
    assert rows[1].endswith("NO DAEMON: no daemon answers beside this broker")
    assert rows[2].endswith("no servlet: the broker is not attached, or with --no-servlet")
    assert total == "3 brokers, 1 daemon, 20 held"
    told = json.loads(run("fleet", "--json", **machines.environment).stdout)
    assert [(one["broker"], one["well"], one["overdue"], one["held"]) for one in told["brokers"]] == [
        (first.name, False, 1, 20),
        (second.name, False, None, None),
        (third.name, False, None, None),
    ]


def test_a_paused_subscription_is_no_fault(machines: Machines) -> None:
    pace = {"paused": True, "rate": None, "spread_ms": None}
    for machine in machines.all:
        machine.status = status(machine.name, subscription("s", overdue_ms=90_000, pace=pace))
    done = run("fleet", **machines.environment)
    assert done.returncode == 0, done.stdout


def test_an_answer_of_another_form_is_a_row_beside_the_others(machines: Machines) -> None:
    machines.all[0].status = 200, {"daemon": None}
    machines.all[1].status = machines.all[2].status = status("x")
    done = run("fleet", **machines.environment)
    assert done.returncode == 1
    assert "a form that this version does not know" in done.stdout
    assert done.stdout.endswith("3 brokers, 1 daemon, 0 held; 2 more are well\n")


def test_without_a_broker_it_says_so() -> None:
    assert_one_line(run("fleet", "--admin-url", "http://127.0.0.1:9"), "name one that is up", 3)
