"""A Pulsar home: attached, the jar of this Tidegate, settings of acknowledgements."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.plugin.attach.attachment import Attachment, ConfState
from tidegate.plugin.attach.broker_keys import ACK_RANGES_KEY, ack_ranges_max
from tidegate.plugin.doctor.finding import Verdict
from tidegate.plugin.doctor.home import HomeFacts, home_findings, restart_findings
from tidegate.plugin.doctor.look import jar_version

ATTACHED = ConfState("broker.conf", True, "/run/tidegate/tidegate.sock", "2000", False)
FACTS = HomeFacts(
    Attachment(Path("/opt/pulsar"), "4.0.8", "current", (ATTACHED,)),
    {"broker.conf": ()},
    "0.1.0",
    1_000,
    10_000,
    0,
)


def of(facts: HomeFacts) -> dict[str, tuple[Verdict, str, str]]:
    return {one.check: (one.verdict, one.says, one.do) for one in home_findings(facts, "0.1.0")}


def attached(jar: str, *confs: ConfState) -> HomeFacts:
    return replace(FACTS, attachment=replace(FACTS.attachment, jar=jar, confs=confs))


def test_all_is_well() -> None:
    found = of(FACTS)
    assert {verdict for verdict, _, _ in found.values()} == {Verdict.OK}
    assert found["conf"][1] == "/opt/pulsar (Pulsar 4.0.8) is attached to /run/tidegate/tidegate.sock"


def test_a_conf_file_that_names_another_tracker_is_a_fault() -> None:
    verdict, says, do = of(attached("current", ATTACHED, replace(ATTACHED, name="b", attached=False)))["conf"]
    assert (verdict, says) == (
        Verdict.FAULT,
        "/opt/pulsar (Pulsar 4.0.8) is attached in part only: b names another tracker",
    )
    assert do == "tidegate attach /opt/pulsar, then restart the broker"


def test_two_sockets_are_a_fault() -> None:
    verdict, says, _ = of(attached("current", ATTACHED, replace(ATTACHED, socket="/run/other.sock")))["conf"]
    assert (verdict, "2 sockets" in says) == (Verdict.FAULT, True)


@pytest.mark.parametrize(
    ("jar", "verdict", "said"),
    [
        ("missing", Verdict.FAULT, "/opt/pulsar/lib has no shim"),
        ("other", Verdict.WARNING, "another build, version 0.0.9; this Tidegate is 0.1.0"),
    ],
)
def test_another_jar(jar: str, verdict: Verdict, said: str) -> None:
    found = of(replace(attached(jar, ATTACHED), jar_version="0.0.9"))["jar"]
    assert found[0] is verdict
    assert said in found[1]


def test_the_advice_of_attach_is_a_warning() -> None:
    verdict, says, _ = of(replace(FACTS, advice={"broker.conf": ("set a=1",)}))["ack-settings"]
    assert (verdict, says) == (Verdict.WARNING, "broker.conf: advice of attach: set a=1")


def test_the_same_advice_for_two_conf_files_is_one_warning() -> None:
    advice = {"broker.conf": ("set a=1", "set b=2"), "standalone.conf": ("set a=1",)}
    found = home_findings(replace(FACTS, advice=advice), "0.1.0")
    assert [one.says for one in found if one.check == "ack-settings"] == [
        "broker.conf, standalone.conf: advice of attach: set a=1",
        "broker.conf: advice of attach: set b=2",
    ]


@pytest.mark.parametrize(
    ("version", "connected_ms", "said"),
    [
        ("4.0.8", 2_000, None),
        ("4.0.8", 999, "changed after"),
        ("4.2.4", 2_000, "runs Pulsar 4.2.4, /opt/pulsar has 4.0.8"),
    ],
)
def test_a_broker_that_runs_something_else(version: str, connected_ms: int, said: str | None) -> None:
    found = restart_findings(FACTS, {"broker-1": (version, connected_ms)})
    assert [said in one.says for one in found if said] == ([True] if said else [])
    assert all(one.verdict is Verdict.NOTE for one in found)


@pytest.mark.parametrize(
    ("values", "version", "most"),
    [
        ({}, "4.0.8", 10_000),
        ({}, "5.0.1", 200_000),
        ({ACK_RANGES_KEY: "7"}, "5.0.1", 7),
        ({ACK_RANGES_KEY: "x"}, "", 0),
    ],
)
def test_the_limit_of_ranges(values: dict[str, str], version: str, most: int) -> None:
    assert ack_ranges_max(values, version) == most


def test_the_version_of_a_jar() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\nImplementation-Version: 0.1.0\r\n")
    assert jar_version(content.getvalue()) == "0.1.0"
    assert jar_version(content.getvalue()[:40]) is None
    assert jar_version(b"") is None
