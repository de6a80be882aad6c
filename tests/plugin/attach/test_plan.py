"""Attaching and detaching: what is written, that nothing is left, what is said when it cannot be."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.conf_texts import texts
from tidegate.plugin.attach import conf_file, nar, unpacking
from tidegate.plugin.attach.attachment import inspect
from tidegate.plugin.attach.broker_keys import (
    ACK_LONG_ARRAY_KEY,
    ACK_RANGES_KEY,
    HORIZON_KEY,
    INDEX_LOG_KEY,
    SOCKET_KEY,
    TRACKER_FACTORY,
    TRACKER_KEY,
    Wanted,
)
from tidegate.plugin.attach.plan import (
    PULSARS_OWN_TRACKER,
    Plan,
    carry_out,
    plan_attach,
    plan_detach,
)
from tidegate.plugin.attach.pulsar_home import PulsarHome
from tidegate.plugin.attach.servlets import DIRECTORY_KEY, SERVLETS_KEY
from tidegate.plugin.doctor.home import home_findings
from tidegate.plugin.doctor.look import look_at_home
from tidegate.plugin.errors import AttachError
from tidegate.plugin.local.trackers import TIDEGATE_FACTORY

JAR = b"a shim"
SOCKET = Path("/run/tidegate/t.sock")
CONFS = ("broker.conf", "standalone.conf")


def attach(
    home: Path,
    jar: bytes = JAR,
    *,
    socket: Path | None = None,
    horizon_ms: int | None = None,
    tune_acks: bool | None = None,
    allow_unknown_version: bool | None = None,
    index_log: str | None = None,
    servlet: bool | None = None,
) -> Plan:
    wanted = Wanted(socket, horizon_ms, tune_acks, allow_unknown_version, index_log, servlet)
    plan = plan_attach(home, wanted, jar, SOCKET)
    carry_out(plan)
    return plan


def detach(home: Path) -> Plan:
    plan = plan_detach(home)
    carry_out(plan)
    return plan


def tree(home: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below ``home`` with its mode and bytes, every directory with its mode."""
    return {
        str(path.relative_to(home)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in home.rglob("*")
    }


def conf_values(home: Path, name: str) -> dict[str, str]:
    return conf_file.values(conf_file.decode((home / "conf" / name).read_bytes()))


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode()))


def test_the_broker_is_told_where_the_daemon_is(home: Path) -> None:
    attach(home, horizon_ms=750)
    for name in CONFS:
        values = conf_values(home, name)
        assert values[TRACKER_KEY] == TIDEGATE_FACTORY == TRACKER_FACTORY
        assert (values[SOCKET_KEY], values[HORIZON_KEY]) == (str(SOCKET), "750")
    assert (home / "lib" / "tidegate-pulsar-shim.jar").read_bytes() == JAR


def test_a_folder_of_archives_that_the_broker_s_user_cannot_write_is_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = tmp_path / "unpacking" / "pulsar-nar"
    unpacked.mkdir(parents=True)
    for name in CONFS:
        conf = home / "conf" / name
        conf.write_text(f"{conf.read_text()}\nnarExtractionDirectory={unpacked.parent}\n")

    def told() -> list[str]:
        return [note for note in attach(home).notes if str(unpacked) in note]

    assert told() == []
    monkeypatch.setattr(PulsarHome, "owner", property(lambda _: 123_456))
    (note,) = told()
    assert note.startswith(f"{unpacked} is not 123456's: its broker cannot unpack the servlet there")
    assert [
        found.says for found in home_findings(look_at_home(home), "0.1.0") if found.do == unpacking.WAYS
    ] == [note.partition(": let root")[0]]
    for mode in (0o777, 0o775):  # of the group, too: the broker's user may be in it
        unpacked.chmod(mode)
        assert told() == []
    (unpacked / f"{nar.NAME}-unpacked").mkdir(mode=0o755)
    assert told()
    attach(home, servlet=False)
    assert told() == []
    assert not look_at_home(home).closed_folders


def test_a_missing_folder_of_archives_is_told_where_the_broker_s_user_cannot_make_it(
    home: Path, tmp_path: Path
) -> None:
    parent = tmp_path / "unpacking"
    parent.mkdir(mode=0o755)
    values = {unpacking.KEY: str(parent)}
    assert unpacking.closed_folder(values, 123_456) == parent
    parent.chmod(0o777)
    assert unpacking.closed_folder(values, 123_456) is None
    assert unpacking.closed_folder(values, 0) is None


def test_archives_unpacked_before_are_in_a_folder_that_decides(tmp_path: Path) -> None:
    """Pulsar makes no folder above it then, so those may be another user's."""
    unpacked = tmp_path / "pulsar-nar" / f"{nar.NAME}-unpacked"
    unpacked.mkdir(parents=True)
    values = {unpacking.KEY: str(tmp_path)}
    for path in (tmp_path, unpacked.parent):
        path.chmod(0o755)
    unpacked.chmod(0o777)
    assert unpacking.closed_folder(values, 123_456) is None
    unpacked.chmod(0o755)
    unpacked.parent.chmod(0o777)
    assert unpacking.closed_folder(values, 123_456) == unpacked


def test_nothing_else_changes_in_the_conf_files(home: Path) -> None:
    before = {name: conf_values(home, name) for name in CONFS}
    lines = {name: (home / "conf" / name).read_bytes().splitlines() for name in CONFS}
    attach(home)
    for name in CONFS:
        ours = {TRACKER_KEY, SOCKET_KEY, HORIZON_KEY, SERVLETS_KEY, DIRECTORY_KEY}
        assert {k: v for k, v in conf_values(home, name).items() if k not in ours} == {
            k: v for k, v in before[name].items() if k not in ours
        }
        after = (home / "conf" / name).read_bytes().splitlines()[: len(lines[name])]
        changed = [new for old, new in zip(lines[name], after, strict=True) if old != new]
        assert changed == [f"{TRACKER_KEY}={TRACKER_FACTORY}".encode()]


@pytest.mark.parametrize("kind", ["as shipped", "CRLF", "no last newline", "no tracker key", "odd bytes"])
@pytest.mark.parametrize("tune_acks", [False, True])
def test_detach_restores_every_byte_and_mode(home: Path, kind: str, tune_acks: bool) -> None:
    for name in CONFS:
        path = home / "conf" / name
        content = path.read_bytes()
        match kind:
            case "CRLF":
                content = content.replace(b"\n", b"\r\n")
            case "no last newline":
                content = content.rstrip(b"\n")
            case "no tracker key":
                content = content.replace(TRACKER_KEY.encode(), b"# " + TRACKER_KEY.encode())
            case "odd bytes":
                content += b"# \xff\xfe \x85\n key\\\n  = value\\\n"
        path.write_bytes(content)
        path.chmod(0o640)
    before = tree(home)
    attach(home, tune_acks=tune_acks)
    assert {(home / "conf" / name).stat().st_mode & 0o777 for name in CONFS} == {0o640}
    assert tree(home) != before
    detach(home)
    assert tree(home) == before


def test_the_second_time_nothing_is_written(home: Path) -> None:
    attach(home, tune_acks=True, horizon_ms=900)
    written = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in home.rglob("*")}
    assert attach(home).changes == ()
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in home.rglob("*")} == written
    detach(home)
    assert detach(home).changes == ()


def test_the_home_of_index_logs_is_kept_until_another_one_is_given(home: Path) -> None:
    attach(home)
    assert INDEX_LOG_KEY not in conf_values(home, "broker.conf")
    attach(home, index_log="bookkeeper")
    attach(home, horizon_ms=900)
    assert conf_values(home, "broker.conf")[INDEX_LOG_KEY] == "bookkeeper"
    attach(home, index_log="none")
    assert INDEX_LOG_KEY not in conf_values(home, "broker.conf")
    attach(home, index_log="s3://bucket/index-logs/")
    for conf in ("broker.conf", "standalone.conf"):
        assert conf_values(home, conf)[INDEX_LOG_KEY] == "s3://bucket/index-logs"


@pytest.mark.parametrize(
    "wanted",
    [
        "somewhere",
        "s3://key:secret@bucket",
        "s3://bucket?secret=1",
        "s3:///folder",
        "file://srv",
        "file:///a/../secret",
        "file:///with space",
        "s3://" + "b" * 2_000,
        "foo://bucket/secret",
        "s4://bucket",
    ],
)
def test_a_home_of_index_logs_that_cannot_be_is_refused_and_not_repeated(home: Path, wanted: str) -> None:
    before = (home / "conf" / "broker.conf").read_bytes()
    with pytest.raises(AttachError, match="--index-log is refused") as caught:
        attach(home, index_log=wanted)
    assert "secret" not in str(caught.value)
    assert (home / "conf" / "broker.conf").read_bytes() == before


@pytest.mark.parametrize("key", ["metadataStoreUrl", "zookeeperServers"])
def test_a_broker_of_a_cluster_keeps_index_logs_unless_told_otherwise(home: Path, key: str) -> None:
    conf = home / "conf" / "broker.conf"
    conf.write_text(conf.read_text(encoding="utf-8") + f"\n{key}=zk1:2181,zk2:2181\n", encoding="utf-8")
    plan = attach(home)
    assert conf_values(home, "broker.conf")[INDEX_LOG_KEY] == "bookkeeper"
    assert INDEX_LOG_KEY not in conf_values(home, "standalone.conf")
    assert [note for note in plan.notes if note.startswith("broker.conf: its broker is of a cluster")]
    plan = attach(home, index_log="none")
    assert INDEX_LOG_KEY not in conf_values(home, "broker.conf")
    assert not plan.notes
    attach(home, horizon_ms=900)
    assert INDEX_LOG_KEY not in conf_values(home, "broker.conf"), "what was chosen stays chosen"
    attach(home, index_log="auto")
    assert conf_values(home, "broker.conf")[INDEX_LOG_KEY] == "bookkeeper"


@pytest.mark.parametrize("store", ["", "rocksdb:///data/metadata", "memory:local"])
def test_a_broker_by_itself_keeps_none(home: Path, store: str) -> None:
    conf = home / "conf" / "broker.conf"
    conf.write_text(conf.read_text(encoding="utf-8") + f"\nmetadataStoreUrl={store}\n", encoding="utf-8")
    assert not attach(home).notes
    assert INDEX_LOG_KEY not in conf_values(home, "broker.conf")


def test_other_settings_start_from_the_original(home: Path) -> None:
    before = tree(home)
    attach(home, tune_acks=True)
    attach(home, socket=Path("/run/other.sock"), tune_acks=False)
    values = conf_values(home, "broker.conf")
    assert (values[SOCKET_KEY], values[ACK_RANGES_KEY]) == ("/run/other.sock", "10000")
    detach(home)
    assert tree(home) == before


def test_tuning_acknowledgements_raises_and_never_lowers(home: Path) -> None:
    edit(home / "conf" / "standalone.conf", f"{ACK_RANGES_KEY}=10000", f"{ACK_RANGES_KEY}=2000000")
    assert "managedLedgerMaxUnackedRangesToPersist=1000000" in "".join(attach(home).advice)
    assert attach(home, tune_acks=True).advice == ()
    assert conf_values(home, "broker.conf")[ACK_RANGES_KEY] == "1000000"
    assert conf_values(home, "standalone.conf")[ACK_RANGES_KEY] == "2000000"
    assert {conf_values(home, name)[ACK_LONG_ARRAY_KEY] for name in CONFS} == {"true"}


def test_the_advice_on_acknowledgements_knows_the_defaults_of_pulsar_5(home: Path) -> None:
    jar = home / "lib" / "org.apache.pulsar-pulsar-broker-4.0.8.jar"
    jar.rename(jar.with_name("org.apache.pulsar-pulsar-broker-5.0.1.jar"))
    carried_over = "".join(attach(home).advice)
    assert f"set {ACK_RANGES_KEY}=200000" in carried_over
    for name in CONFS:
        path = home / "conf" / name
        lines = path.read_text("utf-8").splitlines(keepends=True)
        keys = (ACK_RANGES_KEY, ACK_LONG_ARRAY_KEY)
        path.write_text("".join(line for line in lines if not line.startswith(keys)), "utf-8")
    assert attach(home).advice == ()
    attach(home, tune_acks=True)
    assert {conf_values(home, name)[ACK_RANGES_KEY] for name in CONFS} == {"1000000"}
    assert ACK_LONG_ARRAY_KEY not in conf_values(home, "broker.conf")


def test_delayed_delivery_that_is_off_is_pointed_out(home: Path) -> None:
    edit(home / "conf" / "broker.conf", "delayedDeliveryEnabled=true", "delayedDeliveryEnabled=false")
    assert any("delayedDeliveryEnabled is false" in line for line in attach(home).advice)


def test_a_place_for_index_logs_that_keeps_nothing_is_pointed_out(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "not mounted"
    (line,) = attach(home, tune_acks=True, index_log=f"file://{tmp_path}/not%20mounted").advice
    assert (
        line
        == f"--index-log: there is no folder {folder} here: make or mount it, nothing is kept there before"
    )
    folder.touch()
    assert attach(home).advice == (line,)
    folder.unlink()
    folder.mkdir()
    assert attach(home).advice == ()
    (line,) = attach(home, index_log="memory://here").advice
    assert "keeps nothing beyond the end of the daemon" in line
    (line,) = attach(home, index_log="https://store/folder").advice
    assert line.startswith("--index-log: https:// can only be read")


@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is not None, reason="the package is installed")
def test_a_store_whose_package_is_missing_here_is_pointed_out(home: Path) -> None:
    """The daemon's Python may be another one."""
    assert attach(home, tune_acks=True, index_log="s3://bucket/folder").advice == ()
    (line,) = attach(home, index_log="gs://bucket/folder").advice
    assert line.startswith("--index-log: nothing is kept there before the daemon's Python has it: gs:// ")
    assert line.endswith("what fsspec's documentation names")


def test_detach_keeps_what_was_edited_since(home: Path) -> None:
    path = home / "conf" / "broker.conf"
    original = path.read_bytes()
    attach(home, tune_acks=True)
    edit(path, "\nwebServicePort=8080\n", "\nwebServicePort=18080\n")
    edit(path, f"{ACK_RANGES_KEY}=1000000", f"{ACK_RANGES_KEY}=50000")
    with path.open("ab") as file:
        file.write(b"mine=1\n")
    notes = "\n".join(detach(home).notes)
    assert "broker.conf was edited" in notes
    assert f"{ACK_RANGES_KEY} was changed and stays" in notes
    expected = original.replace(b"\nwebServicePort=8080\n", b"\nwebServicePort=18080\n")
    expected = expected.replace(f"{ACK_RANGES_KEY}=10000".encode(), f"{ACK_RANGES_KEY}=50000".encode())
    assert path.read_bytes() == expected + b"mine=1\n"


def test_attaching_again_after_an_edit_keeps_the_edit_for_good(home: Path) -> None:
    path = home / "conf" / "broker.conf"
    original = path.read_bytes()
    attach(home)
    edit(path, "\nwebServicePort=8080\n", "\nwebServicePort=18080\n")
    attach(home)
    detach(home)
    assert path.read_bytes() == original.replace(b"\nwebServicePort=8080\n", b"\nwebServicePort=18080\n")


def test_an_edited_file_without_its_copy_still_comes_back(home: Path) -> None:
    path = home / "conf" / "broker.conf"
    original = path.read_bytes()
    attach(home)
    (home / "conf" / "tidegate" / "broker.conf").unlink()
    assert detach(home).notes == ()
    assert path.read_bytes() == original


def test_detach_without_a_record_goes_back_to_pulsars_default(home: Path) -> None:
    names, values = set(tree(home)), [conf_values(home, name) for name in CONFS]
    attach(home)
    for file in (home / "conf" / "tidegate").iterdir():
        file.unlink()
    assert all("there is no record" in note for note in detach(home).notes)
    assert set(tree(home)) == names
    assert [conf_values(home, name) for name in CONFS] == values
    assert values[0][TRACKER_KEY] == PULSARS_OWN_TRACKER


def test_another_shim_is_replaced_and_one_under_another_name_goes(home: Path) -> None:
    attach(home, jar=b"an older shim")
    stray = home / "lib" / "tidegate-pulsar-shim-0.0.9.jar"
    stray.write_bytes(b"a much older shim")
    assert inspect(home).jar == "other"
    notes = attach(home).notes
    assert len(notes) == 2
    assert (home / "lib" / "tidegate-pulsar-shim.jar").read_bytes() == JAR
    assert not stray.exists()


@pytest.mark.parametrize("steps", range(7))
def test_an_attach_that_was_cut_off_anywhere_is_finished_or_undone(home: Path, steps: int) -> None:
    before = tree(home)
    plan = plan_attach(home, Wanted(tune_acks=True), JAR, SOCKET)
    carry_out(Plan(home=plan.home, settings=plan.settings, changes=plan.changes[:steps], notes=(), advice=()))
    detach(home)
    assert tree(home) == before
    carry_out(Plan(home=plan.home, settings=plan.settings, changes=plan.changes[:steps], notes=(), advice=()))
    attach(home, tune_acks=True)
    assert inspect(home).state == "attached"
    detach(home)
    assert tree(home) == before


def cut(plan: Plan, steps: int) -> None:
    """Carry out the first ``steps`` changes."""
    carry_out(Plan(home=plan.home, settings=plan.settings, changes=plan.changes[:steps], notes=(), advice=()))


@pytest.mark.parametrize("edited", [False, True])
def test_another_attach_that_was_cut_off_anywhere_loses_no_original(home: Path, edited: bool) -> None:
    before = tree(home)
    conf = home / "conf" / "broker.conf"
    wanted = Wanted(tune_acks=False, horizon_ms=900, servlet=False)
    steps = 0
    while True:
        for again in (False, True):
            attach(home, tune_acks=True)
            if edited:
                edit(conf, "\nwebServicePort=8080\n", "\nwebServicePort=18080\n")
            plan = plan_attach(home, wanted, JAR, SOCKET)
            cut(plan, steps)
            if again:
                cut(plan_attach(home, Wanted(tune_acks=False, horizon_ms=1_100), JAR, SOCKET), steps)
                attach(home, horizon_ms=1_000)
                assert attach(home).changes == ()
            assert detach(home).notes == () or edited
            if edited:
                edit(conf, "\nwebServicePort=18080\n", "\nwebServicePort=8080\n")
            assert tree(home) == before, (steps, again)
        if steps >= len(plan.changes):
            return
        steps += 1


def test_a_conf_file_that_an_attach_has_not_reached_is_not_called_edited(home: Path) -> None:
    attach(home, tune_acks=True)
    plan = plan_attach(home, Wanted(tune_acks=False), JAR, SOCKET)
    cut(plan, 1)
    assert plan.changes[0].path.name == "attach.json"
    assert [conf.edited for conf in inspect(home).confs] == [False, False]


def test_a_former_file_without_its_copy_comes_back_by_the_record(home: Path) -> None:
    attach(home, horizon_ms=900)
    before = conf_values(home, "broker.conf")
    cut(plan_attach(home, Wanted(horizon_ms=1_000), JAR, SOCKET), 1)
    (home / "conf" / "tidegate" / "broker.conf").write_bytes(b"clusterName=of somebody else")
    detach(home)
    assert conf_values(home, "broker.conf").keys() < before.keys()
    assert conf_values(home, "broker.conf")["clusterName"] == before["clusterName"]


def test_a_record_of_a_former_tidegate_names_no_former_files(home: Path) -> None:
    before = tree(home)
    attach(home)
    path = home / "conf" / "tidegate" / "attach.json"
    record = json.loads(path.read_bytes())
    for conf in record["confs"].values():
        assert conf.pop("former_sha256") == []
    path.write_text(json.dumps(record))
    detach(home)
    assert tree(home) == before


PLACES = (
    "conf/.broker.conf",
    "conf/.standalone.conf",
    "conf/tidegate/.broker.conf",
    "conf/tidegate/.standalone.conf",
    "conf/tidegate/.attach.json",
    "lib/.tidegate-pulsar-shim.jar",
    f"lib/.{nar.NAME}",
)


@pytest.mark.parametrize("attaches", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_a_killed_attach_left_goes(home: Path, place: str, attaches: bool) -> None:
    before = tree(home)
    left = home / f"{place}.0123456789abcdef"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"password=")
    if attaches:
        assert left.exists()
        attach(home)
        assert not left.exists()
        assert attach(home).changes == ()
    detach(home)
    assert tree(home) == before


def test_a_file_that_a_detach_left_goes_with_the_next(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(home)
    attach(home)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", killed)
    monkeypatch.setattr(os, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        detach(home)
    monkeypatch.undo()
    assert list((home / "conf").glob(".broker.conf.*"))
    detach(home)
    assert tree(home) == before


@pytest.mark.parametrize(
    "name",
    [
        ".broker.conf.swp",
        ".broker.conf.0123456789abcde",
        ".broker.conf.0123456789ABCDEF",
        ".broker.conf.0123456789abcdef0",
        ".bookkeeper.conf.0123456789abcdef",
        "broker.conf.0123456789abcdef",
    ],
)
def test_a_file_that_is_none_of_ours_stays(home: Path, name: str) -> None:
    mine = home / "conf" / name
    mine.write_bytes(b"mine")
    attach(home)
    detach(home)
    assert mine.read_bytes() == b"mine"


def test_a_leftover_that_is_a_link_or_of_another_user_stays(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, other = (home / "conf" / f".broker.conf.{digit * 16}" for digit in "ab")
    target = tmp_path / "target"
    target.write_bytes(b"of somebody else")
    link.symlink_to(target)
    other.write_bytes(b"of somebody else")
    real = os.stat

    def stat(path: str, **options: Any) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result((*found[:4], 12_345, *found[5:])) if path == other.name else found

    monkeypatch.setattr(os, "stat", stat)
    attach(home)
    detach(home)
    monkeypatch.undo()
    assert link.is_symlink()
    assert other.exists()


@pytest.mark.parametrize("steps", range(9))
def test_a_conf_file_names_no_servlet_without_its_archive(home: Path, steps: int) -> None:
    attach(home)
    plan = plan_attach(home, Wanted(servlet=False), JAR, SOCKET)
    carry_out(Plan(home=plan.home, settings=plan.settings, changes=plan.changes[:steps], notes=(), advice=()))
    archive = home / "lib" / nar.NAME
    assert archive.exists() or not any(SERVLETS_KEY in conf_values(home, name) for name in CONFS)
    attach(home, servlet=False)
    assert not archive.exists()


@pytest.mark.parametrize("steps", range(6))
def test_a_detach_that_was_cut_off_anywhere_is_finished(home: Path, steps: int) -> None:
    before = tree(home)
    attach(home)
    plan = plan_detach(home)
    carry_out(Plan(home=plan.home, settings=None, changes=plan.changes[:steps], notes=(), advice=()))
    detach(home)
    assert tree(home) == before


def test_what_inspect_says(home: Path) -> None:
    assert (inspect(home).state, inspect(home).pulsar_version) == ("detached", "4.0.8")
    attach(home, horizon_ms=900)
    found = inspect(home)
    assert found.attached
    assert [(c.name, c.attached, c.socket, c.horizon_ms, c.edited) for c in found.confs] == [
        (name, True, str(SOCKET), "900", False) for name in CONFS
    ]
    edit(home / "conf" / "broker.conf", TRACKER_FACTORY, PULSARS_OWN_TRACKER)
    assert (inspect(home).state, inspect(home).confs[0].edited) == ("partly", True)
    (home / "lib" / "tidegate-pulsar-shim.jar").unlink()
    assert inspect(home).state == "partly"


@settings(max_examples=40, deadline=None)
@given(
    text=texts,
    tail=st.sampled_from(["", "\n", "\r\n"]),
    tunings=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_any_conf_file_comes_back(text: str, tail: str, tunings: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "lib").mkdir()
        (home / "lib" / "pulsar-broker-4.2.4.jar").touch()
        (home / "conf").mkdir()
        original = conf_file.encode(f"clusterName=c\n{text}{tail}")
        (home / "conf" / "broker.conf").write_bytes(original)
        for number, tune in enumerate(tunings):
            attach(home, tune_acks=tune, horizon_ms=1 + number)
            assert conf_values(home, "broker.conf")[HORIZON_KEY] == str(1 + number)
        detach(home)
        assert (home / "conf" / "broker.conf").read_bytes() == original


def refused(home: Path, *, socket: Path | None = None) -> str:
    """The refusal of attach; it must be one line, and nothing may have changed."""
    before = tree(home) if home.is_dir() else {}
    with pytest.raises(AttachError) as raised:
        attach(home, socket=socket)
    message = str(raised.value)
    assert "\n" not in message
    assert (tree(home) if home.is_dir() else {}) == before
    return message


def test_what_is_not_a_pulsar_home_is_refused(tmp_path: Path, home: Path) -> None:
    assert "is not a directory" in refused(tmp_path / "nowhere")
    assert "is not a Pulsar home" in refused(tmp_path / "pulsar" / "conf")
    for name in CONFS:
        (home / "conf" / name).unlink()
    assert "has no conf/broker.conf" in refused(home)


@pytest.mark.parametrize("content", [b"", b"# clusterName=x\n", b"[server]\nport = 1\n", b"clusterName=\0\n"])
def test_a_conf_file_that_is_not_pulsars_is_refused(home: Path, content: bytes) -> None:
    (home / "conf" / "standalone.conf").write_bytes(content)
    assert "standalone.conf is not a Pulsar broker's conf file" in refused(home)


def test_a_record_that_cannot_be_read_is_refused(home: Path) -> None:
    (home / "conf" / "tidegate" / "attach.json").mkdir(parents=True)
    assert "cannot read" in refused(home)


def test_a_record_that_is_nested_without_end_is_refused(home: Path) -> None:
    record = home / "conf" / "tidegate" / "attach.json"
    record.parent.mkdir()
    record.write_text('{"format":' + "[" * 100_000, "ascii")
    assert "is damaged" in refused(home)


def test_a_conf_file_without_end_is_refused(home: Path) -> None:
    with (home / "conf" / "standalone.conf").open("ab") as file:
        file.truncate(1 << 26)
    assert "is longer than" in refused(home)


@pytest.mark.parametrize("version", ["3.3.9", "4.3.0", "5.1.0-rc-1"])
def test_a_pulsar_that_the_shim_does_not_know_is_refused_unless_allowed(home: Path, version: str) -> None:
    jar = home / "lib" / "org.apache.pulsar-pulsar-broker-4.0.8.jar"
    jar.rename(jar.with_name(f"org.apache.pulsar-pulsar-broker-{version}.jar"))
    assert f"is Pulsar {version}; the shim knows 4.0.x, 4.1.x, 4.2.x" in refused(home)
    attach(home, allow_unknown_version=True)
    assert conf_values(home, "broker.conf")["tidegateAllowUnknownVersion"] == "true"


def test_a_mixture_of_pulsars_is_refused(home: Path) -> None:
    (home / "lib" / "org.apache.pulsar-pulsar-broker-4.1.1.jar").touch()
    assert "more than one Pulsar (4.0.8, 4.1.1)" in refused(home)


def test_a_socket_path_that_cannot_be_is_refused(home: Path) -> None:
    assert "too long for a socket" in refused(home, socket=Path("/run") / ("x" * 110))
    assert "control characters" in refused(home, socket=Path("/run/a\nb"))


def test_a_record_that_cannot_be_understood_is_refused(home: Path) -> None:
    attach(home)
    record = home / "conf" / "tidegate" / "attach.json"
    edit(record, '"format": 1', '"format": 2')
    assert "is of format 2 and this Tidegate knows 1" in refused(home)
    record.write_text("{")
    assert "is damaged" in refused(home)


def test_a_place_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "conf" / "tidegate").write_bytes(b"in the way")
    assert "conf/tidegate" in refused(home)


def test_without_permission_nothing_is_begun(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = home / "lib"

    def access(name: str, _mode: int, *, dir_fd: int) -> bool:
        return Path(f"/proc/self/fd/{dir_fd}").readlink() != lib

    monkeypatch.setattr(os, "access", access)
    assert refused(home) == f"cannot write to {lib}: run this as the user that Pulsar belongs to"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_copy_of_a_conf_file_is_as_private_as_the_file(home: Path, mode: int) -> None:
    for name in CONFS:
        (home / "conf" / name).chmod(mode)
    (home / "conf").chmod(0o750)
    attach(home)
    kept = home / "conf" / "tidegate"
    assert kept.stat().st_mode & 0o777 == 0o750
    for name in CONFS:
        assert (kept / name).stat().st_mode & 0o777 == mode
        assert (home / "conf" / name).stat().st_mode & 0o777 == mode


def test_attaching_again_makes_a_copy_private_that_was_not(home: Path) -> None:
    attach(home)
    conf, copy = home / "conf" / "broker.conf", home / "conf" / "tidegate" / "broker.conf"
    conf.chmod(0o600)
    edit(conf, "clusterName=", "clusterName=other")
    assert copy.stat().st_mode & 0o777 != 0o600
    attach(home)
    assert copy.stat().st_mode & 0o777 == 0o600


def test_the_copy_belongs_to_whom_the_conf_file_belongs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    real_stat, real_fstat = os.stat, os.fstat

    def of_another(found: os.stat_result) -> os.stat_result:
        return os.stat_result((*found[:4], 12_345, 12_346, *found[6:]))

    def chown(_descriptor: int, uid: int, gid: int) -> None:
        given.append((uid, gid))

    monkeypatch.setattr(os, "stat", lambda *args, **options: of_another(real_stat(*args, **options)))
    monkeypatch.setattr(os, "fstat", lambda descriptor: of_another(real_fstat(descriptor)))
    monkeypatch.setattr(os, "fchown", chown)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    attach(home)
    monkeypatch.undo()
    written = len(CONFS) * 2 + 4  # the copies, the record, its directory, the jar, the servlet's archive
    assert given == [(12_345, 12_346)] * written
