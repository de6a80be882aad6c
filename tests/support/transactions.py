"""Messages in transactions, which the Python client cannot send: a Java client does."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.inbox import Sent
from tests.support.java_client import java_command
from tests.support.lane import Lane, now_ms

_PROGRAMS = Path(__file__).parents[1] / "broker" / "java"
SENDER = _PROGRAMS / "TransactionalSender.java"
ACKER = _PROGRAMS / "TransactionalAcker.java"


@dataclass(frozen=True)
class Transaction:
    """One transaction to publish: ``number`` messages with uids from ``first`` on; delay 0 is a plain one."""

    outcome: str
    first: int
    number: int
    delay_ms: int


@contextmanager
def transactions_enabled(cluster: Cluster) -> Iterator[None]:
    """A broker with transactions, which Pulsar's default and the others lack.

    With them every topic reads its namespace's snapshots before it opens, in turn, and a read amid their
    compaction ends in vain after 30 s (4.0.8, ``TableView``).
    """
    _start_again(cluster, with_transactions="true")
    try:
        yield
    finally:
        _start_again(cluster, with_transactions="false")


def _start_again(cluster: Cluster, *, with_transactions: str) -> None:
    cluster.broker.configure({"transactionCoordinatorEnabled": with_transactions})
    cluster.broker.stop()
    cluster.start_broker()


def send_in_transactions(lane: Lane, *transactions: Transaction) -> list[Sent]:
    """Publish with the distribution's Java client; the messages of committed transactions.

    A delay counts from one common now, before the Java client starts.
    """
    start_ms = now_ms()
    arguments: list[str] = []
    committed: list[Sent] = []
    for one in transactions:
        deliver_at_ms = start_ms + one.delay_ms if one.delay_ms else 0
        arguments += [one.outcome, str(one.first), str(one.number), str(deliver_at_ms)]
        if one.outcome == "commit":
            committed += [
                Sent(f"{uid:06d}", deliver_at_ms or None) for uid in range(one.first, one.first + one.number)
            ]
    _run(lane, SENDER, *arguments)
    return committed


def acknowledge_in_transactions(lane: Lane, highest: int, *acks: tuple[str, str, str]) -> None:
    """Outcome, individual or cumulative, and subscription of each, with the odd uids acknowledged before.

    In each transaction the even uids up to `highest` are acknowledged.
    """
    _run(lane, ACKER, str(highest), *itertools.chain.from_iterable(acks))


def _run(lane: Lane, program: Path, *arguments: str) -> None:
    result = subprocess.run(
        [
            *java_command(program),
            lane.cluster.service_url, f"persistent://{lane.topic}", *arguments,
        ],
        cwd=lane.cluster.work_dir, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"the Java client failed: {result.stderr[-2000:]}{result.stdout[-2000:]}"
