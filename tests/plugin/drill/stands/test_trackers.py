"""The tracker in a broker's conf."""

from __future__ import annotations

from pathlib import Path

from tidegate.plugin.drill.stands.trackers import broker_conf


def test_the_brokers_of_a_cluster_keep_index_logs_as_one_attaches_them(tmp_path: Path) -> None:
    socket_path = tmp_path / "s"
    assert broker_conf("tidegate", socket_path, several=True)["tidegateIndexLog"] == "bookkeeper"
    for conf in (
        broker_conf("tidegate", socket_path),
        broker_conf("no-index-log", socket_path, several=True),
        broker_conf("bucket", socket_path, several=True),
    ):
        assert "tidegateIndexLog" not in conf
