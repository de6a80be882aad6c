"""A backup of everything that is Pulsar's, and what is done with it: it is made, and it is put back.

Both while no broker runs: they were stopped or killed before. What is put back takes the place of all that
has become of Pulsar since: the topic's messages, the cursors with their properties, the metadata, the ledgers
of index logs. Ledger ids are given anew then. What daemons have on their disks, and in a store of objects,
stays as it is; so does what is on its way to them. For users nothing has happened since the backup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.bookkeeper import CursorInfo, Subscription, TopicLog
from tests.sim.kernel import NS_PER_MS, NS_PER_S
from tests.sim.log_beliefs import LogBelief
from tests.sim.log_home import StoredLogs
from tests.sim.obligations import Account

if TYPE_CHECKING:
    from tests.sim.world import World

_CLOSE_NS = 2 * NS_PER_S  # a broker that is stopped closes its topics before
_SETTLE_NS = 60 * NS_PER_MS  # what a killed broker had sent to bookies has arrived by then


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A subscription in a backup, and what its user was owed."""

    info: CursorInfo | None
    last_version: int
    account: Account


@dataclass(frozen=True, slots=True)
class _Backup:
    topic: TopicLog
    cursors: tuple[_Cursor, ...]
    logs: StoredLogs
    log_beliefs: dict[int, LogBelief]


class Backups:
    """The last backup of a world, if there is one. `down`: no broker may be started now."""

    def __init__(self, world: World) -> None:
        self.down = False
        self._world = world
        self._backup: _Backup | None = None

    def make(self, *, gently: bool, down_ms: int) -> None:
        """Stop all brokers, make a backup, and start them after that time. Nothing if they are down for one
        already."""
        if not self.down:
            self._shut_down(self._make, gently=gently, daemons="", down_ms=down_ms)

    def put_back(self, *, gently: bool, daemons: str, down_ms: int) -> bool:
        """Stop all brokers, and daemons if that is `stop` or `kill`; put the backup back, and start all after
        that time. False if there is none."""
        if self.down or self._backup is None:
            return False
        self._shut_down(self._put_back, gently=gently, daemons=daemons, down_ms=down_ms)
        return True

    # ---- brokers

    def _shut_down(self, then: Callable[[], None], *, gently: bool, daemons: str, down_ms: int) -> None:
        world = self._world
        self.down = True
        if gently:
            world.unload(None)

        def kill() -> None:
            world.end_rebuilds()
            for broker in world.brokers:
                if broker.process is not None:
                    world.kernel.kill(broker.process)
            for daemon in world.daemons if daemons else []:
                daemon.stop() if daemons == "stop" else daemon.kill()
            world.kernel.after(_SETTLE_NS, None, then)
            world.kernel.after(_SETTLE_NS + down_ms * NS_PER_MS, None, start)

        def start() -> None:
            self.down = False
            for daemon in world.daemons if daemons else []:
                daemon.start()
            for broker in world.brokers:
                world.start_broker(broker)

        world.kernel.after(_CLOSE_NS if gently else 0, None, kill)

    # ---- the backup

    def _make(self) -> None:
        world = self._world
        logs = world.log_bookies.copied()
        self._backup = _Backup(
            world.bookkeeper.log.copied(),
            tuple(self._copied(each) for each in world.subscriptions),
            logs,
            world.log_beliefs.copied(logs.ledgers),
        )
        world.kernel.note(f"a backup of Pulsar is made, up to {world.bookkeeper.log.end}")

    @staticmethod
    def _copied(subscription: Subscription) -> _Cursor:
        info = None if subscription.info is None else subscription.info.copied()
        return _Cursor(info, subscription.last_version, subscription.obligations.account())

    def _put_back(self) -> None:
        world, backup = self._world, self._backup
        assert backup is not None
        world.forget_owner()
        since = world.log_bookies.put_back(backup.logs)
        for daemon in world.daemons:
            daemon.promises.put_back(since)
        world.log_beliefs.put_back(backup.log_beliefs, since)
        world.bookkeeper.log.put_back(backup.topic)
        for subscription, cursor in zip(world.subscriptions, backup.cursors, strict=True):
            subscription.info = None if cursor.info is None else cursor.info.copied()
            subscription.last_version = cursor.last_version
            subscription.obligations.put_back(cursor.account)
        for client in world.clients:
            client.left_over.clear()
        world.kernel.note(f"Pulsar is put back, up to {world.bookkeeper.log.end}")
