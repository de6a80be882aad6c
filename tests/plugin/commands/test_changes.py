"""The choice of messages, as far as it needs no daemon."""

from __future__ import annotations

import os
import subprocess
import sys

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
