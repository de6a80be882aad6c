"""The pauses of an index log that cannot be written."""

from __future__ import annotations

from tidegate.plugin.daemon.index_logs.stream_log import RETRY_FIRST_S, RETRY_MAX_S, retry_pause_s


def test_a_pause_grows_up_to_a_maximum_however_long_the_home_is_away() -> None:
    pauses_s = [retry_pause_s(failures) for failures in range(1, 5_000)]
    assert pauses_s[:3] == [RETRY_FIRST_S, 2 * RETRY_FIRST_S, 4 * RETRY_FIRST_S]
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[-1] == RETRY_MAX_S
