"""Socket, data directory, disk and memory."""

from __future__ import annotations

import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.plugin.doctor.finding import Verdict
from tidegate.plugin.doctor.look import look_at_data, look_at_socket
from tidegate.plugin.doctor.machine import (
    LEAST_BYTES,
    DataFacts,
    FileFacts,
    Silence,
    SocketFacts,
    data_findings,
    socket_findings,
)
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket

SOCKET = FileFacts("/run/t/t.sock", stat.S_IFSOCK | 0o600, 7)
FOLDER = FileFacts("/run/t", stat.S_IFDIR | 0o700, 7)
FACTS = SocketFacts("/run/t/t.sock", SOCKET, FOLDER, "")
NOBODY = SocketFacts("/run/t/t.sock", None, replace(FOLDER, uid=123_456), "no daemon answers", Silence.NOBODY)
DATA = DataFacts(FileFacts("/data", stat.S_IFDIR | 0o700, 7), (), 1 << 40, 1 << 40)
TOTALS = {"disk_bytes": 1 << 30, "memory_bytes": 1 << 28, "held": 1 << 28}


def test_a_socket_that_answers_is_well() -> None:
    (found,) = socket_findings(FACTS)
    assert found.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("facts", "said", "do"),
    [
        (replace(FACTS, file=None, failure="no daemon answers on /x"), "no daemon answers on /x", "log"),
        (NOBODY, "no daemon answers", "as 123456: tidegate serve --data DIR --socket /run/t/t.sock"),
        (
            replace(NOBODY, directory=None),
            "no daemon",
            "as root: install -d -m 700 -o USER /run/t; then as the",
        ),
        (replace(NOBODY, silence=Silence.DENIED), "no daemon", "give this command as 123456, or as root"),
        (
            replace(FACTS, directory=replace(FOLDER, mode=stat.S_IFDIR | 0o777)),
            "others can write",
            "chmod go-w",
        ),
        (replace(FACTS, file=replace(SOCKET, mode=stat.S_IFREG | 0o600)), "is not a socket", "--socket"),
        (replace(FACTS, file=replace(SOCKET, mode=stat.S_IFSOCK | 0o666)), "mode 0666", "chmod 600"),
        (replace(FACTS, directory=replace(FOLDER, uid=123_456)), "belongs to 123456", "let root run: chown"),
    ],
)
def test_a_socket_is_at_fault(facts: SocketFacts, said: str, do: str) -> None:
    (found,) = socket_findings(facts)
    assert found.verdict is Verdict.FAULT
    assert said in found.says
    assert do in found.do


def test_the_home_s_owner_is_to_make_the_directory_and_start_the_daemon() -> None:
    (found,) = socket_findings(replace(NOBODY, directory=None), 123_457)
    assert found.do.startswith("as root: install -d -m 700 -o 123457 /run/t; then as 123457: tidegate serve ")


def test_a_look_tells_a_missing_daemon_from_a_forbidden_and_a_mute_one(short_dir: Path) -> None:
    path = short_dir / "t.sock"

    def silence() -> Silence:
        with pytest.raises(UserError) as caught:
            ask_socket(path, {"what": "status"}, timeout_s=0.1)
        facts = look_at_socket(path, caught.value)
        assert facts.failure == str(caught.value)
        return facts.silence

    assert silence() is Silence.NOBODY
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(path))
        assert silence() is Silence.NOBODY
        left.listen()
        assert silence() is Silence.OTHER
    denied = UserError("no permission")
    denied.__cause__ = PermissionError()
    assert look_at_socket(path, denied).silence is Silence.DENIED
    assert look_at_socket(path, None).failure == ""


def test_a_sticky_directory_of_root_is_well() -> None:
    sticky = replace(FOLDER, mode=stat.S_IFDIR | 0o1777, uid=0)
    assert [one.verdict for one in socket_findings(replace(FACTS, directory=sticky))] == [Verdict.OK]


@pytest.mark.parametrize(
    ("owner", "uid", "verdict"),
    [
        (None, 7, Verdict.OK),
        (0, 7, Verdict.OK),
        (7, 7, Verdict.OK),
        (7, 0, Verdict.OK),
        (8, 7, Verdict.WARNING),
    ],
)
def test_a_daemon_of_another_user_than_the_home_s(owner: int | None, uid: int, verdict: Verdict) -> None:
    facts = SocketFacts("/run/t/t.sock", replace(SOCKET, uid=uid), replace(FOLDER, uid=uid), "")
    assert [one.verdict for one in socket_findings(facts, owner)] == [verdict]


def of(facts: DataFacts, **totals: int) -> dict[str, tuple[Verdict, str]]:
    return {one.check: (one.verdict, one.says) for one in data_findings(facts, TOTALS | totals)}


def test_a_closed_directory_with_room_is_well() -> None:
    found = of(DATA)
    assert {verdict for verdict, _ in found.values()} == {Verdict.OK}
    assert found["disk"][1] == "1.0 TiB free, 1.0 GiB used (4.0 B a message): room for 274,877,906,944 more"


def test_few_messages_have_no_forecast() -> None:
    assert "room for" not in of(DATA, held=9_999)["disk"][1]


def test_modes_open_to_others() -> None:
    wide = replace(DATA, directory=replace(DATA.directory, mode=stat.S_IFDIR | 0o755))
    assert of(wide)["data"][0] is Verdict.WARNING
    assert of(replace(DATA, open_to_others=("/data/x",)))["data"][0] is Verdict.NOTE


@pytest.mark.parametrize(
    ("free", "verdict"),
    [
        (LEAST_BYTES - 1, Verdict.FAULT),
        (LEAST_BYTES, Verdict.WARNING),
        ((1 << 30) - 1, Verdict.WARNING),
        (1 << 30, Verdict.OK),
    ],
)
def test_room_on_the_disk(free: int, verdict: Verdict) -> None:
    assert of(replace(DATA, free_bytes=free))["disk"][0] is verdict


@pytest.mark.parametrize(
    ("free", "verdict"),
    [
        (LEAST_BYTES - 1, Verdict.FAULT),
        ((1 << 28) - 1, Verdict.WARNING),
        (1 << 28, Verdict.OK),
    ],
)
def test_room_in_memory(free: int, verdict: Verdict) -> None:
    assert of(replace(DATA, memory_free_bytes=free))["memory"][0] is verdict


def test_memory_that_nobody_tells_is_not_judged() -> None:
    assert "memory" not in of(replace(DATA, memory_free_bytes=None))


def test_a_file_that_the_store_deletes_meanwhile_hides_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there := tmp_path / "there").touch(0o644)
    monkeypatch.setattr(Path, "rglob", lambda *_: iter([tmp_path / "gone", there]))
    found = look_at_data(tmp_path)
    assert found is not None
    assert found.open_to_others == (str(there),)
