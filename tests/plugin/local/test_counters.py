"""A broker's counters, read from its own text."""

from __future__ import annotations

from tidegate.plugin.local.counters import parse_entries_read


def test_the_brokers_count_of_reads_is_found_by_topic_and_success() -> None:
    name = "pulsar_broker_managed_ledger_message_incoming_count"
    text = "\n".join(
        [
            f"# TYPE {name} gauge",
            f'{name}{{pulsar_managed_ledger_name="public/default/persistent/t10",status="success"}} 9.0',
            f'{name}{{pulsar_managed_ledger_name="public/default/persistent/t1",status="failure"}} 8.0',
            f'{name}{{pulsar_managed_ledger_name="public/default/persistent/t1",status="success"}} 1.0E6',
        ]
    )
    assert parse_entries_read(text, "t1") == 1_000_000
    assert parse_entries_read(text, "t2") == 0
