"""The daemon or broker that a command asks: by flags, by variables, by both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons import assert_one_line, run

URL = "http://127.0.0.1:9"
AWAY = "no daemon"
TIDE = ("tide", "orders")


def test_a_flag_beats_a_variable(tmp_path: Path) -> None:
    socket = str(tmp_path / "none.sock")
    asked = run(*TIDE, "--socket", socket, TIDEGATE_ADMIN_URL=URL)
    assert asked.returncode == 3
    assert socket in asked.stderr
    asked = run(*TIDE, "--admin-url", URL, TIDEGATE_SOCKET=socket)
    assert asked.returncode == 3
    assert URL in asked.stderr


@pytest.mark.parametrize(
    ("flags", "variables", "said"),
    [
        (("--socket", "a.sock", "--admin-url", URL), {}, "--socket or --admin-url"),
        ((), {"TIDEGATE_SOCKET": "a.sock", "TIDEGATE_ADMIN_URL": URL}, "--socket or --admin-url"),
        (("--admin-url", URL, "--token", "t", "--token-file", "f"), {}, "--token or --token-file"),
        (("--token", "t"), {}, "--token is for HTTP: give --admin-url"),
        (("--token-file", "f", "--socket", "a.sock"), {}, "--token-file is for HTTP: give --admin-url"),
    ],
)
def test_contradictions_are_refused_in_a_line(
    flags: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    assert_one_line(run(*TIDE, *flags, **variables), said, 2)


def test_a_token_of_a_variable_gives_way_to_a_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-of-a-test")
    token.chmod(0o600)
    asked = run(*TIDE, "--admin-url", URL, "--token-file", str(token), TIDEGATE_TOKEN="t")  # noqa: S106
    assert asked.returncode == 3, asked.stderr
