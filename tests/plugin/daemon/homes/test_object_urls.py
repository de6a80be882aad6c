"""URLs of homes of index logs."""

from __future__ import annotations

import pytest

from tidegate.plugin.daemon.homes.object_stores import check_known, checked_url


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/logs",
        "s3://bucket/a/b-1_2.3/",
        "memory://b/logs",
        "file:///srv/logs[1]",
        "hdfs://[::1]/logs",
    ],
)
def test_accepted(url: str) -> None:
    assert checked_url(url) == url.rstrip("/")


@pytest.mark.parametrize("url", ["s3://bucket/logs[12]", "s3://bucket/team*/logs", "memory://b/[1]"])
def test_patterns_are_refused(url: str) -> None:
    """Whoever removes a log there would remove those of all folders that the pattern fits."""
    with pytest.raises(ValueError, match=r"without \* and \[ in its path"):
        checked_url(url)


def test_a_scheme_that_fsspec_does_not_know_is_refused() -> None:
    """`attach` says so: the daemon would find out with the first log."""
    check_known("memory://b/logs")
    check_known("file:///srv/logs")
    with pytest.raises(ValueError, match="knows no nowhere://: correct it"):
        check_known("nowhere://bucket/logs")
