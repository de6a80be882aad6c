"""``tidegate completion``: a real bash completes by it; the others ask as their scripts do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import assert_one_line, run

HELP = "Show what the daemon holds, the worst first."


@pytest.fixture
def on_path(tmp_path: Path) -> Path:
    """A directory with the program."""
    program = tmp_path / "tidegate"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidegate.plugin.cli "$@"\n')
    program.chmod(0o755)
    return tmp_path


def completed_by_bash(on_path: Path, *words: str) -> list[str]:
    script = run("completion", "bash").stdout
    typed = " ".join(f"'{word}'" for word in words)
    program = f"{script}\nCOMP_WORDS=({typed})\nCOMP_CWORD={len(words) - 1}\n_tidegate_completion tidegate\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", program + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": f"{on_path}:/usr/bin:/bin", "HOME": str(on_path)},
        cwd=on_path,
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("tidegate", "statu"), ["status"]),
        (("tidegate", "pa"), ["pause", "pace"]),
        (("tidegate", "status", "--http-t"), ["--http-token-file"]),
        (("tidegate", "attach", "--serv"), ["--servlet"]),
    ],
)
def test_bash_completes(on_path: Path, words: tuple[str, ...], found: list[str]) -> None:
    assert completed_by_bash(on_path, *words) == found


def test_zsh_is_told_commands_with_their_summaries() -> None:
    script = run("completion", "zsh").stdout
    assert "_TIDEGATE_COMPLETE=complete_zsh" in script
    assert "loadautofunc" in script
    done = run(_TIDEGATE_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="tidegate sta")
    assert done.returncode == 0
    assert f'"status":"{HELP}"' in done.stdout


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_a_script_in_a_directory_of_zsh_completes_at_the_first_tab(on_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "functions"
    folder.mkdir()
    (folder / "_tidegate").write_text(run("completion", "zsh").stdout)
    of_zsh = "compdef() { print registered $* }; _arguments() { print -r -- offered $* }"
    tab = "words=(tidegate sta); CURRENT=2; _tidegate"
    done = subprocess.run(
        ["zsh", "-f", "-c", f"{of_zsh}; fpath=({folder}); autoload -Uz _tidegate; {tab}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": f"{on_path}:/usr/bin:/bin", "HOME": str(on_path)},
    )
    registered, offered = done.stdout.splitlines()
    assert registered == "registered _tidegate_completion tidegate"
    assert offered.startswith("offered *: :((")
    assert f'"status":"{HELP}"' in offered


def test_fish_is_told_options() -> None:
    assert "_TIDEGATE_COMPLETE=complete_fish" in run("completion", "fish").stdout
    asked = {"_TYPER_COMPLETE_ARGS": "tidegate doctor --js", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = run(_TIDEGATE_COMPLETE="complete_fish", **asked)
    assert done.stdout.startswith("--json\t")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_defaults_in_brackets_stay(shell: str) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "tidegate status --so", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = run(_TIDEGATE_COMPLETE=f"complete_{shell}", **asked)
    assert "Unix socket [default" in done.stdout


def test_an_open_quotation_is_no_error() -> None:
    done = run(_TIDEGATE_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="tidegate status 'a b")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_shell_is_refused() -> None:
    assert_one_line(run("completion", "tcsh"), "is not one of 'bash', 'zsh', 'fish'", 2)
