"""The command's tests are locked, and known by their full names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.__main__ import HERE, TESTS, default_tests, full_name, main, versions
from tidegate.plugin.errors import SetupError
from tidegate.plugin.local.assembled import read_lock

# Central has no tests of 5.0.1.
TESTS_OF = {"4.0.8": "4.0.8", "4.2.4": "4.2.4", "5.0.1": "4.2.4"}


@pytest.mark.parametrize("lock", sorted((HERE / "jars").glob("*.lock")), ids=lambda lock: lock.stem)
def test_every_jar_is_locked_once_and_pulsars_tests_are_among_them(lock: Path) -> None:
    jars = read_lock(lock.read_text("utf-8"))
    assert len({jar.name_in_home for jar in jars}) == len(jars)
    assert [jar.version for jar in jars if jar.classifier == "tests"] == [
        TESTS_OF[lock.stem.removeprefix("pulsar-")]
    ]


def test_each_version_runs_tests() -> None:
    assert versions() == sorted(TESTS_OF)
    assert [len(default_tests(version)) for version in versions()] == [3, 3, 2]
    assert set(default_tests("5.0.1")) < set(TESTS)


def test_tests_are_known_by_their_classes() -> None:
    assert full_name("DelayedDeliveryTest#testOrderingDispatch") == (
        "org.apache.pulsar.broker.service.persistent.DelayedDeliveryTest#testOrderingDispatch"
    )
    assert len({full_name(test) for test in TESTS}) == len(TESTS)
    with pytest.raises(SetupError, match="OtherTest is none of DelayedDeliveryTest, "):
        full_name("OtherTest#testIt")


def test_a_version_without_tests_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_PULSAR", "4.1.0")
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "tests.suite: there are no tests of Pulsar 4.1.0 here: try 4.0.8, 4.2.4, 5.0.1\n"
    )
