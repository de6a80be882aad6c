"""Conf files edited as text: nothing but the keys set changes, and undoing gives every byte back."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.conf_texts import PIECES, TRACKER, texts
from tidegate.plugin.attach import conf_file

SETTINGS = {
    TRACKER: "tidegate.pulsar.TrackerFactory",
    "tidegateSocket": "/run/tide gate/\\s.sock",
    "acks": "1000",
}


def java_reads(contents: list[bytes], directory: Path) -> list[dict[str, str]]:
    for number, content in enumerate(contents):
        (directory / str(number)).write_bytes(content)
    dump = Path(__file__).with_name("PropertiesDump.java")
    done = subprocess.run(["java", str(dump), str(directory)], capture_output=True, text=True, check=True)

    def text(digits: str) -> str:
        return bytes.fromhex(digits).decode("utf-16-be")

    # A key without a name is nobody's; Java reads one from a lone backslash at the end of a file.
    pairs = [
        [item.split("=") for item in line.split() if item[0] != "="] for line in done.stdout.splitlines()
    ]
    return [{text(key): text(value) for key, value in line} for line in pairs]


@given(texts)
@example("")
@example("a=1")
@example("a=1\\")
@example("a=1\\\n")
@example("acks")
@example("acks\\\n =\\\n  5\\\n0\r\n")
def test_undo_gives_the_text_back(text: str) -> None:
    attached, edit = conf_file.apply(text, SETTINGS)
    assert conf_file.undo(attached, edit) == conf_file.Undone(text, ())


@given(texts)
@example("a=1\\")
def test_the_keys_are_set_and_the_others_are_as_before(text: str) -> None:
    attached, edit = conf_file.apply(text, SETTINGS)
    assert conf_file.values(attached) == {**conf_file.values(text), **SETTINGS}
    assert attached.endswith(("\n", "\r")) == (text.endswith(("\n", "\r")) or bool(edit.appended))


@given(texts)
def test_the_second_time_changes_nothing(text: str) -> None:
    attached, _ = conf_file.apply(text, SETTINGS)
    assert conf_file.apply(attached, SETTINGS) == (attached, conf_file.Edit((), "", ()))


@given(texts)
def test_lines_joined_are_the_text(text: str) -> None:
    assert "".join(line.raw for line in conf_file.parse(text)) == text


@given(st.binary())
def test_any_bytes_survive(content: bytes) -> None:
    assert conf_file.encode(conf_file.decode(content)) == content


def test_java_reads_files_as_we_do(tmp_path: Path) -> None:
    choose = random.Random(20_261_121)  # noqa: S311
    pieces = [piece for piece in PIECES if piece.isascii()]
    contents = ["".join(choose.choices(pieces, k=choose.randrange(30))) for _ in range(1_500)]
    contents += [conf_file.apply(text, SETTINGS)[0] for text in contents]
    ours = [{key: value for key, value in conf_file.values(text).items() if key} for text in contents]
    assert java_reads([text.encode() for text in contents], tmp_path) == ours


def test_java_reads_the_values_that_we_write(tmp_path: Path) -> None:
    values = [" a", "a ", "a\\b", "#a", "!", "a=b:c", "/srv/Grüße/😀.sock", "", "\\", "\\u0041"]
    contents = [conf_file.encode(conf_file.apply("acks=7\n", {"acks": value})[0]) for value in values]
    assert [read["acks"] for read in java_reads(contents, tmp_path)] == values


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_key_is_set_in_its_place_and_new_keys_come_last(ending: str) -> None:
    before = ["# delayed", f"{TRACKER} = Old", "acks=10000", "", "# acks=5"]
    attached, _ = conf_file.apply(ending.join(before), SETTINGS)
    assert attached.split(ending) == [
        "# delayed", f"{TRACKER} = tidegate.pulsar.TrackerFactory", "acks=1000", "", "# acks=5",
        "", conf_file.BLOCK_TITLE, "tidegateSocket=/run/tide gate/\\\\s.sock", "",
    ]  # fmt: skip


def test_of_a_key_that_stands_twice_the_last_is_set() -> None:
    attached, _ = conf_file.apply("acks=1\nacks=2\n", {"acks": "3"})
    assert attached == "acks=1\nacks=3\n"


def test_undo_keeps_what_somebody_has_changed_elsewhere() -> None:
    attached, edit = conf_file.apply("acks=7\nother=1\n", SETTINGS)
    edited = "first=0\n" + attached.replace("other=1", "other=2") + "last=9\n"
    assert conf_file.undo(edited, edit) == conf_file.Undone("first=0\nacks=7\nother=2\nlast=9\n", ())


def test_undo_keeps_and_names_a_key_whose_value_somebody_has_changed() -> None:
    attached, edit = conf_file.apply("acks=7\n", {"acks": "1000"})
    assert conf_file.undo(attached.replace("1000", "5000"), edit) == conf_file.Undone(
        "acks=5000\n", ("acks",)
    )


def test_undo_takes_its_own_keys_also_from_a_block_that_was_edited() -> None:
    attached, edit = conf_file.apply("a=1\n", SETTINGS)
    edited = attached.replace("/run/tide gate", "/elsewhere").replace("acks=1000", "acks=5000\nmine=1")
    assert conf_file.undo(edited, edit) == conf_file.Undone("a=1\nacks=5000\nmine=1\n", ("acks",))


def test_a_line_that_was_deleted_stays_deleted() -> None:
    attached, edit = conf_file.apply("acks=7\nb=1\n", {"acks": "1000"})
    assert conf_file.undo(attached.replace("acks=1000\n", ""), edit) == conf_file.Undone("b=1\n", ())


def test_text_written_after_a_file_without_a_last_newline_stays_a_line_of_its_own() -> None:
    attached, edit = conf_file.apply("a=1", SETTINGS)
    assert conf_file.values(attached + "b=2\n") == {"a": "1", "b": "2"} | SETTINGS
    assert conf_file.undo(attached + "b=2\n", edit).text == "a=1\nb=2\n"
    assert conf_file.undo(attached + "\nb=2\n", edit).text == "a=1\nb=2\n"


def test_an_older_attach_s_block_without_a_last_newline_goes() -> None:
    attached, edit = conf_file.apply("a=1", SETTINGS)
    older = replace(edit, appended=edit.appended.removesuffix("\n"))
    assert conf_file.undo(attached.removesuffix("\n"), older).text == "a=1"
    assert conf_file.undo(attached + "b=2\n", older).text == "a=1\nb=2\n"
