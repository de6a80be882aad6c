"""Looks at the daemons of stands."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tidegate.plugin.drill.stands.daemons import wait_for_broker
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.daemon import Daemon


class Away:
    """A daemon that does not answer."""

    url = "http://127.0.0.1:1"
    log_path = Path("daemon.log")


def test_a_daemon_that_takes_long_not_to_answer_is_given_up_in_time() -> None:
    now_s = 0.0
    pauses: list[float] = []

    def monotonic_s() -> float:
        nonlocal now_s
        now_s += 2.0  # the time-out of a request
        return now_s

    with pytest.raises(UserError, match="no broker was connected to the daemon within 180 s"):
        wait_for_broker(cast("Daemon", Away()), pauses.append, monotonic_s)
    assert len(pauses) < 100
