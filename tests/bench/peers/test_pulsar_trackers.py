"""Pulsar's own trackers as peers: a JVM with the distribution's jars, killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness import workloads
from bench.harness.errors import BenchError
from bench.harness.workloads import ENTRIES_PER_LEDGER
from bench.peers import inputs, roster
from bench.peers.base import (
    DRAIN,
    FILL,
    LATENESS,
    LATENESS_PER_S,
    RECOVER,
    DrainFigures,
    FillFigures,
    LatenessFigures,
    RecoverFigures,
)
from bench.peers.launch import Budget, Session
from bench.pulsar import jvm

COUNT = 2 * ENTRIES_PER_LEDGER + 20_000
SEALED = 2 * ENTRIES_PER_LEDGER
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    launcher = roster.launcher(request.param)
    assert launcher.missing() is None
    inputs.write(tmp_path, workloads.seeded(workloads.UNIFORM, COUNT, seed=3))
    with Session(launcher, tmp_path, workloads.UNIFORM, COUNT, Budget(120.0, 1.0)) as made:
        yield made


@pytest.mark.parametrize("session", ["bucket"], indirect=True)
def test_bucket_knows_after_a_kill_what_it_had_sealed(session: Session) -> None:
    filled = session.start(FILL, FillFigures)
    assert filled.added == COUNT
    session.settle()
    session.kill()
    recovered = session.start(RECOVER, RecoverFigures)
    assert recovered.held_after == SEALED
    assert recovered.first_pop_s is not None
    assert recovered.popped > 0
    session.kill()
    drained = session.start(DRAIN, DrainFigures)
    assert drained.popped == SEALED
    assert drained.missing == COUNT - SEALED
    assert drained.again == drained.out_of_order == 0


@pytest.mark.parametrize("session", ["bucket", "in-memory"], indirect=True)
def test_every_entry_that_was_added_is_handed_out_once_and_some_early(session: Session) -> None:
    session.start(FILL, FillFigures)
    drained = session.ask(DRAIN, DrainFigures)
    assert drained.popped == COUNT
    assert drained.missing == drained.again == drained.out_of_order == 0
    assert 0 < drained.early < COUNT // 10


@pytest.mark.parametrize("session", ["in-memory"], indirect=True)
def test_the_in_memory_tracker_knows_nothing_after_a_kill(session: Session) -> None:
    session.start(FILL, FillFigures)
    session.kill()
    recovered = session.start(RECOVER, RecoverFigures)
    assert recovered.held_after == recovered.popped == 0
    assert recovered.first_pop_s is None


@pytest.mark.parametrize("session", ["bucket", "in-memory"], indirect=True)
def test_what_falls_due_in_real_time_is_handed_out_before_the_backlog(session: Session) -> None:
    late = session.start(LATENESS, LatenessFigures)
    assert late.handed_out == LATENESS_PER_S
    assert late.missing == 0
    assert late.backlog == COUNT
    assert late.fast is not None
    assert late.fast.p50_ms <= late.fast.p99_ms <= late.fast.max_ms
    assert late.quantiles_ms == sorted(late.quantiles_ms)


def test_java_that_does_not_compile_is_told_with_the_compilers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Broken.java").write_text("class Broken { int x = ; }", encoding="utf-8")
    monkeypatch.setattr(jvm, "SOURCES", tmp_path)
    monkeypatch.setattr(jvm, "CLASSES", tmp_path / "classes")
    with pytest.raises(BenchError, match="illegal start of expression"):
        jvm.compiled()
    assert list((tmp_path / "classes").iterdir()) == []


def test_classes_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Fine.java").write_text("class Fine { }", encoding="utf-8")
    monkeypatch.setattr(jvm, "SOURCES", tmp_path)
    monkeypatch.setattr(jvm, "CLASSES", tmp_path / "classes")
    first = jvm.compiled()
    assert (first / "Fine.class").exists()
    with monkeypatch.context() as without_compiler:
        without_compiler.setattr(jvm, "_javac", lambda *_: pytest.fail("compiled again"))
        assert jvm.compiled() == first
    (tmp_path / "Fine.java").write_text("class Fine { int changed; }", encoding="utf-8")
    assert jvm.compiled() != first
