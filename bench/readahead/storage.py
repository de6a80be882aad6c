"""The storage's limit for a topic's entries: batch reads by the bookie's own protocol.

Entries only have their digests checked and are counted.
"""

from __future__ import annotations

import time

from bench.harness.errors import BenchError
from tidegate.pipeline.errors import TopicError
from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.bookies import Bookies
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.state import parse_state


def entries_per_s(admin_url: str, topic: str) -> float:
    """Read the topic (``public/default/NAME``) from its first entry to its last. Raises BenchError."""
    name = TopicName.parse(f"persistent://public/default/{topic}")
    try:
        with Admin(admin_url, Access()) as admin:
            state = parse_state(name, admin.internal_stats(name))
        count = 0
        began_s = time.monotonic()
        with Bookies() as bookies:
            for ledger in state.ledgers:
                if ledger.entries:
                    batches = bookies.entries(ledger, 0, ledger.entries - 1)
                    count += sum(len(batch.payloads) for batch in batches)
        return count / (time.monotonic() - began_s)
    except TopicError as error:
        raise BenchError(f"the topic's ledgers cannot be read: {error}") from error
