"""A backup of everything of Pulsar's, and its return.

Both while no broker runs: they were stopped or killed before. The backup replaces everything of Pulsar since:
the topic's messages, the cursors with their properties, the metadata, the ledgers of index logs. Ledger ids
are then given anew. The daemons' data on disks, and in a store of objects, stays, as does data on its way
there. For users nothing has happened since the backup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.sim.bookkeeper import BookKeeper, CursorInfo, Subscription, TopicLog
from tests.sim.broker import Broker
from tests.sim.client import Client
from tests.sim.daemon import DaemonHost
from tests.sim.kernel import NS_PER_MS, NS_PER_S, Kernel
from tests.sim.log_beliefs import LogBelief, LogBeliefs
from tests.sim.log_home import LogBookies, StoredLogs
from tests.sim.obligations import Account
from tests.sim.override_ledgers import OverrideLedger

_CLOSE_NS = 2 * NS_PER_S  # a stopping broker closes its topics before
_SETTLE_NS = 60 * NS_PER_MS  # a killed broker's data for bookies has arrived by then


class Cluster(Protocol):
    """The world, for a backup: stops, copies and restores it."""

    kernel: Kernel
    bookkeeper: BookKeeper
    log_bookies: LogBookies
    log_beliefs: LogBeliefs
    brokers: list[Broker]
    daemons: list[DaemonHost]
    subscriptions: list[Subscription]
    clients: list[Client]

    def unload(self, to: int | None) -> None:
        """The topic is closed by its owner and looked up again."""

    def end_rebuilds(self) -> None:
        """Hang up, wherever they are."""

    def forget_owner(self) -> None:
        """The metadata store is another one, and no broker runs."""

    def start_broker(self, broker: Broker) -> None:
        """Start a broker that is down."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A subscription in a backup, and its debts to its user."""

    info: CursorInfo | None
    last_version: int
    account: Account


@dataclass(frozen=True, slots=True)
class _Backup:
    topic: TopicLog
    cursors: tuple[_Cursor, ...]
    logs: StoredLogs
    overrides: tuple[dict[int, OverrideLedger], int]
    log_beliefs: dict[int, LogBelief]


class Backups:
    """The last backup of a cluster, if any. `down`: no broker may be started now."""

    def __init__(self, cluster: Cluster) -> None:
        self.down = False
        self._cluster = cluster
        self._backup: _Backup | None = None

    def make(self, *, gently: bool, down_ms: int) -> None:
        """Stop all brokers, make a backup, and start them after that time. Nothing if they are already down
        for one.
        """
        if not self.down:
            self._shut_down(self._make, gently=gently, daemons="", down_ms=down_ms)

    def put_back(self, *, gently: bool, daemons: str, down_ms: int) -> bool:
        """Stop all brokers, and daemons if that is `stop` or `kill`; put the backup back, and start all after
        that time. False without one.
        """
        if self.down or self._backup is None:
            return False
        self._shut_down(self._put_back, gently=gently, daemons=daemons, down_ms=down_ms)
        return True

    # ---- brokers

    def _shut_down(self, then: Callable[[], None], *, gently: bool, daemons: str, down_ms: int) -> None:
        cluster = self._cluster
        self.down = True
        if gently:
            cluster.unload(None)

        def kill() -> None:
            cluster.end_rebuilds()
            for broker in cluster.brokers:
                if broker.process is not None:
                    cluster.kernel.kill(broker.process)
            for daemon in cluster.daemons if daemons else []:
                daemon.stop() if daemons == "stop" else daemon.kill()
            cluster.kernel.after(_SETTLE_NS, None, then)
            cluster.kernel.after(_SETTLE_NS + down_ms * NS_PER_MS, None, start)

        def start() -> None:
            self.down = False
            for daemon in cluster.daemons if daemons else []:
                daemon.start()
            for broker in cluster.brokers:
                cluster.start_broker(broker)

        cluster.kernel.after(_CLOSE_NS if gently else 0, None, kill)

    # ---- the backup

    def _make(self) -> None:
        cluster = self._cluster
        logs = cluster.log_bookies.copied()
        self._backup = _Backup(
            cluster.bookkeeper.log.copied(),
            tuple(self._copied(each) for each in cluster.subscriptions),
            logs,
            cluster.bookkeeper.overrides.copied(),
            cluster.log_beliefs.copied(logs.ledgers),
        )
        cluster.kernel.note(f"a backup of Pulsar is made, up to {cluster.bookkeeper.log.end}")

    @staticmethod
    def _copied(subscription: Subscription) -> _Cursor:
        info = None if subscription.info is None else subscription.info.copied()
        return _Cursor(info, subscription.last_version, subscription.obligations.account())

    def _put_back(self) -> None:
        cluster, backup = self._cluster, self._backup
        assert backup is not None
        cluster.forget_owner()
        since = cluster.log_bookies.put_back(backup.logs)
        for daemon in cluster.daemons:
            daemon.promises.put_back(since)
        cluster.log_beliefs.put_back(backup.log_beliefs, since)
        cluster.bookkeeper.log.put_back(backup.topic)
        cluster.bookkeeper.overrides.put_back(backup.overrides)
        for subscription, cursor in zip(cluster.subscriptions, backup.cursors, strict=True):
            subscription.info = None if cursor.info is None else cursor.info.copied()
            subscription.last_version = cursor.last_version
            subscription.forward = None
            subscription.pace.forget(may_be_paused=True)
            subscription.obligations.put_back(cursor.account)
            subscription.changed.forget()
        for client in cluster.clients:
            client.left_over.clear()
        cluster.kernel.note(f"Pulsar is put back, up to {cluster.bookkeeper.log.end}")
