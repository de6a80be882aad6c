"""After everything above, neither the shim, the daemon nor the stand has anything to complain of."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.cluster import Cluster

pytestmark = pytest.mark.tidegate_only


def test_the_broker_log_shows_no_error_of_the_shim(cluster: Cluster) -> None:
    text = cluster.broker.log_path.read_text(encoding="utf-8", errors="replace")
    bad = [record for record in re.split(r"\n(?=\d{4}-\d\d-\d\dT)", text) if _is_of_the_shim(record)]
    assert not bad, f"{len(bad)} records, the first: {bad[0][:2000]}"
    assert "incarnation could not be stored" not in text


def _is_of_the_shim(record: str) -> bool:
    """An error that the shim logs, or a stack trace that goes through it."""
    head, *trace = record.split("\n")
    if " ERROR tidegate." in head:
        # Of test_a_process_of_another_user_listens_where_the_daemon_did.
        return "is not the Tidegate daemon" not in head
    # A cursor that writes its own record at the same instant refuses the property once; the shim tries again.
    refused = "ManagedCursorImpl" in head and any("BadVersionException" in line for line in trace)
    return not refused and any(line.startswith("\tat tidegate.pulsar.") for line in trace)


def test_a_broker_that_starts_loads_the_classes_of_the_shim(cluster: Cluster) -> None:
    text = cluster.broker.log_path.read_text(encoding="utf-8", errors="replace")
    told = re.findall(r"(\d+) of the shim's (\d+) classes are loaded", text)
    assert told
    assert all(loaded == known and int(known) > 50 for loaded, known in told), told


def test_the_bookie_never_takes_its_own_registration_for_lost(cluster: Cluster) -> None:
    # docs/decisions/stale-bookie.md: that comes thousands of times a second, and no topic is loaded. A
    # graceful stop may also log its own release; only a valid lock is taken again.
    text = cluster.broker.log_path.read_text(encoding="utf-8", errors="replace")
    lost = re.findall(r"Lock on resource /ledgers/available/\S+ was invalidated\. state Valid", text)
    assert not lost, f"{len(lost)} times"


def test_the_daemon_log_shows_no_error(cluster: Cluster) -> None:
    lines = cluster.daemon.log_path.read_text(encoding="utf-8").splitlines()
    bad = [line for line in lines if not _is_fine(line)]
    # test_90_daemon.py takes the end of the store's WAL away once; that must be said.
    told = [line for line in bad if "commits are gone that had been reported durable" in line]
    assert len(told) <= 1
    others = [line for line in bad if line not in told]
    assert not others, f"{len(others)} lines, the first: {others[:3]}"


def _is_fine(line: str) -> bool:
    """A structured line below the level of an error; a traceback is not structured."""
    try:
        return json.loads(line)["level"] in {"debug", "info", "warning"}
    except (ValueError, KeyError):
        return False
