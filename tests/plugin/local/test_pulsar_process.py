"""The environment of the distribution's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.plugin.local.pulsar_process import Jvm, environment_of


def test_the_users_own_jvm_options_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PULSAR_EXTRA_OPTS", "-Duser=1 -Dboth=theirs")
    told = environment_of(tmp_path, Jvm(options=["-Dboth=ours"]))["PULSAR_EXTRA_OPTS"].split()
    assert told[:2] == ["-Duser=1", "-Dboth=theirs"]
    # Of an option that stands twice, the JVM takes the last.
    assert told[-1] == "-Dboth=ours"


def test_without_any_there_are_only_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PULSAR_EXTRA_OPTS", raising=False)
    told = environment_of(tmp_path, Jvm(options=["-Dours=1"]))["PULSAR_EXTRA_OPTS"]
    assert told == "-Dpulsar.allocator.exit_on_oom=false -Dours=1"
