"""The servlet comes and goes with the shim, beside the servlets that a broker has already."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.plugin.attach.test_plan import attach, conf_values, detach, edit, tree
from tidegate.plugin.attach.nar import NAME, servlet_nar
from tidegate.plugin.attach.servlets import DIRECTORY_KEY, SERVLETS_KEY
from tidegate.plugin.errors import AttachError


def broker_conf(home: Path, *lines: str) -> None:
    """Put lines at the end of broker.conf."""
    path = home / "conf" / "broker.conf"
    path.write_text(path.read_text("utf-8") + "".join(f"{line}\n" for line in lines), "utf-8")


def servlet_keys(home: Path) -> tuple[str | None, str | None]:
    values = conf_values(home, "broker.conf")
    return values.get(SERVLETS_KEY), values.get(DIRECTORY_KEY)


def test_the_archive_names_the_servlet_and_is_the_same_each_time() -> None:
    assert servlet_nar() == servlet_nar()
    with zipfile.ZipFile(io.BytesIO(servlet_nar())) as archive:
        said = archive.read("META-INF/services/additional_servlet.yml").decode()
        assert "META-INF/bundled-dependencies/" in archive.namelist()
    assert "name: tidegate\n" in said
    assert "additionalServletClass: tidegate.pulsar.WebApi\n" in said


def test_a_broker_without_servlets_gets_ours_in_lib(home: Path) -> None:
    before = tree(home)
    attach(home)
    assert servlet_keys(home) == ("tidegate", "./lib")
    assert (home / "lib" / NAME).read_bytes() == servlet_nar()
    assert attach(home).changes == ()
    detach(home)
    assert tree(home) == before


def test_it_may_be_left_out_and_that_is_remembered(home: Path) -> None:
    before = tree(home)
    attach(home)
    attach(home, servlet=False)
    assert servlet_keys(home) == (None, None)
    assert not (home / "lib" / NAME).exists()
    attach(home, horizon_ms=900)
    assert servlet_keys(home) == (None, None)
    attach(home, servlet=True)
    assert servlet_keys(home) == ("tidegate", "./lib")
    detach(home)
    assert tree(home) == before


@pytest.mark.parametrize("directory", [None, "./servlets", "servlets/", "absolute"])
def test_it_joins_the_servlets_that_are_there(home: Path, directory: str | None) -> None:
    folder = home / ("brokerAdditionalServlet" if directory is None else "servlets")
    folder.mkdir()
    (folder / "theirs.nar").write_bytes(b"theirs")
    said = str(folder) if directory == "absolute" else directory
    broker_conf(home, f"{SERVLETS_KEY}=theirs, more", *([] if said is None else [f"{DIRECTORY_KEY}={said}"]))
    before = tree(home)
    attach(home)
    assert servlet_keys(home) == ("theirs,more,tidegate", said)
    assert (folder / NAME).read_bytes() == servlet_nar()
    assert (home / "lib" / NAME).exists()  # for standalone.conf, which has none of theirs
    detach(home)
    assert tree(home) == before


@pytest.mark.parametrize("directory", ["/srv/servlets", "./a/b", "..", ".", "./conf", "./missing"])
def test_where_it_cannot_be_put_a_note_says_what_to_do(home: Path, directory: str) -> None:
    broker_conf(home, f"{SERVLETS_KEY}=theirs", f"{DIRECTORY_KEY}={directory}")
    before = tree(home)
    plan = attach(home)
    assert servlet_keys(home) == ("theirs", directory)
    (note,) = [one for one in plan.notes if "servlet" in one]
    assert note.startswith("broker.conf: ")
    assert "lib/tidegate-pulsar-servlet.nar" in note
    detach(home)
    assert tree(home) == before


def test_servlets_that_others_add_later_stay(home: Path) -> None:
    attach(home)
    edit(home / "conf" / "broker.conf", f"{SERVLETS_KEY}=tidegate", f"{SERVLETS_KEY}=tidegate,later")
    plan = detach(home)
    assert servlet_keys(home)[0] == "later"
    assert any(SERVLETS_KEY in note for note in plan.notes)


@pytest.mark.parametrize(("before", "after"), [("tidegate", None), ("theirs,tidegate", "theirs")])
def test_without_a_record_only_our_servlet_goes(home: Path, before: str, after: str | None) -> None:
    attach(home)
    edit(home / "conf" / "broker.conf", f"{SERVLETS_KEY}=tidegate", f"{SERVLETS_KEY}={before}")
    (home / "conf" / "tidegate" / "attach.json").unlink()
    detach(home)
    assert servlet_keys(home)[0] == after
    assert not (home / "lib" / NAME).exists()


def test_a_record_of_a_former_tidegate_gets_the_servlet(home: Path) -> None:
    attach(home, servlet=False)
    path = home / "conf" / "tidegate" / "attach.json"
    content = json.loads(path.read_text("utf-8"))
    del content["settings"]["servlet"]
    path.write_text(json.dumps(content), "utf-8")
    attach(home)
    assert servlet_keys(home) == ("tidegate", "./lib")


def test_a_link_to_a_folder_of_servlets_is_not_followed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (home / "servlets").symlink_to(tmp_path / "elsewhere")
    broker_conf(home, f"{SERVLETS_KEY}=theirs", f"{DIRECTORY_KEY}=./servlets")
    with pytest.raises(AttachError, match="is a link"):
        attach(home)
    assert list((tmp_path / "elsewhere").iterdir()) == []
