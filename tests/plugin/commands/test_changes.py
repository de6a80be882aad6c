"""The choice of messages, as far as it needs no daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.daemons import START_SECONDS


def test_an_input_that_is_no_text_is_refused_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.plugin.cli", "cancel", "orders", "sub", "--ids", "-"],
        input=b"\xff\n",
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
    )
    assert done.returncode == 1
    assert done.stderr == b"tidegate: the input is no file of message ids: it is not text\n"


def test_an_id_that_is_none_is_refused_without_a_daemon(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate.plugin.cli", "show", "orders", "sub", "17-4711"),
            *("--socket", str(tmp_path / "none.sock")),
        ],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "tidegate: '17-4711' is no message id: write ledger:entry, as in 17:4711\n"
