"""A watch on a daemon's upkeep, which goes on while nothing disturbs it: persists shorten the journal and
repair damage of failed ones, compactions make few runs of many, index logs get everything durable. No message
depends on that, so nothing else would miss it; the store, the next start and the next move suffer.

The bounds are generous: only work that would never begin exceeds them.
"""

from __future__ import annotations

import asyncio

from tests.sim.daemon import DaemonHost, Life
from tests.sim.kernel import NS_PER_MS, NS_PER_S, Violation
from tidegate.index.format import keys
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon.index_logs.stream_log import RETRY_MAX_S, StreamLog

_PERSIST_NS = 6 * NS_PER_S
"""Beyond `persist_age_ms`."""
_WORK_NS = 10 * NS_PER_S
_TELL_NS = NS_PER_S
_LOG_NS = 9 * NS_PER_S
_AGAIN_NS = int(RETRY_MAX_S * NS_PER_S)


class UpkeepWatch:
    """Looks at a daemon now and then."""

    def __init__(self, daemon: DaemonHost) -> None:
        self._daemon = daemon
        self._life: Life | None = None
        self._journal: dict[bytes, tuple[int, int]] = {}
        """Since when each record should go, and up to where persists covered by then, 0 if not it."""
        self._crowded: dict[DelayIndex, tuple[int, int]] = {}
        """Since when slices are crowded, and how many compactions there had been."""
        self._untidy: dict[DelayIndex, int] = {}
        """Since when a persist is to repair something."""
        self._answers: dict[asyncio.Task[None], int] = {}
        """Since when an answer is given, and the daemon still knows it."""
        self._unlogged: dict[tuple[StreamLog, int, int], int] = {}
        """Since when a log has had so many entries, with that write as its oldest waiting one."""

    def look(self) -> None:
        """Raise Violation if overdue upkeep still waits."""
        daemon = self._daemon
        life = daemon.life
        if life is None or life is not self._life or life.catalog is None or life.stopping:
            self._life = life
            self._journal, self._crowded = {}, {}
            self._untidy, self._answers, self._unlogged = {}, {}, {}
            return
        self._look_at_answers(life)
        self._look_at_logs(life)
        if daemon.disk.damaged or daemon.disk.troubled:
            return
        self._look_at_journal()
        self._look_at_slices(life)
        self._look_at_leftovers()

    @property
    def has_behind(self) -> bool:
        """True if an index log still lacks something, and its daemon continues it."""
        life = self._life
        logs = [] if life is None or life.logs is None else life.logs._by_id.values()
        return any(log.writer.since_ns is not None and not log.over for log in logs)

    def _waited_ns(self, since_ns: int) -> int:
        kernel = self._daemon.kernel
        return kernel.now_ns - max(since_ns, kernel.disturbed_until_ns)

    def _look_at_journal(self) -> None:
        daemon = self._daemon
        now_ns, known = daemon.kernel.now_ns, self._journal
        persisted = {
            index.own_journal.subscription_id: index.own_journal.persisted_sequence
            for index in daemon.indexes()
        }
        found: dict[bytes, tuple[int, int]] = {}
        for key, _ in daemon.disk.scan(*keys.kind_range(keys.JOURNAL)):
            covered = persisted.get(keys.subscription_id_of(key), 0)
            if keys.parse_journal_key(key)[0] > covered:
                covered = 0
            since_ns, then = known.get(key, (now_ns, covered))
            # A commit may write it after the persist that covers it: then the next one deletes it.
            found[key] = (since_ns, then) if covered == 0 or then not in (0, covered) else (now_ns, covered)
        self._journal = found
        age_ms = daemon.options.index.persist_age_ms
        allowed_ns = age_ms * NS_PER_MS + _PERSIST_NS
        old = [key for key, (since_ns, _) in found.items() if self._waited_ns(since_ns) > allowed_ns]
        if old:
            raise Violation(
                f"{daemon.name} keeps {len(old)} records of its journal for more than "
                f"{allowed_ns // NS_PER_MS} ms, though it persists after {age_ms}: {old[0].hex()}"
            )

    def _look_at_slices(self, life: Life) -> None:
        assert life.catalog is not None
        now_ns, known, done = self._daemon.kernel.now_ns, self._crowded, life.catalog.background.compactions
        self._crowded = {}
        for index in self._daemon.indexes():
            if index.timeline.crowded.first() is None or index.upkeep.absent_blocks:
                continue
            since_ns, then = known.get(index, (now_ns, done))
            self._crowded[index] = (since_ns, done) if then == done else (now_ns, done)
            if self._waited_ns(self._crowded[index][0]) > _WORK_NS:
                raise Violation(
                    f"{self._daemon.name} leaves a slice of {index.name} crowded for more than "
                    f"{_WORK_NS // NS_PER_MS} ms: {index.timeline.crowded.first()}"
                )

    def _look_at_leftovers(self) -> None:
        daemon = self._daemon
        now_ns, known = daemon.kernel.now_ns, self._untidy
        untidy = [index for index in daemon.indexes() if index._persister._leftovers]
        self._untidy = {index: known.get(index, now_ns) for index in untidy}
        for index, since_ns in self._untidy.items():
            if self._waited_ns(since_ns) > _WORK_NS:
                raise Violation(f"{daemon.name} repairs nothing of {index.name}, though a persist is to")

    def _look_at_answers(self, life: Life) -> None:
        if life.engine is None:
            return
        now_ns, known = self._daemon.kernel.now_ns, self._answers
        given = [task for task in life.engine.queries._telling if task.done()]
        self._answers = {task: known.get(task, now_ns) for task in given}
        if any(self._waited_ns(since_ns) > _TELL_NS for since_ns in self._answers.values()):
            raise Violation(f"{self._daemon.name} remembers {len(given)} answers that it has given")

    def _may_fail(self) -> bool:
        """True if the cause of a log's failure may be gone, and the log has not tried again."""
        daemon = self._daemon
        bad_ns = max(
            daemon.objects.bookies.troubled_ns, daemon.kernel.disturbed_until_ns, daemon.disk.applied_ns
        )
        return daemon.disk.damaged or daemon.disk.troubled or daemon.kernel.now_ns - bad_ns < _AGAIN_NS

    def _look_at_logs(self, life: Life) -> None:
        """Of logs whose home has done every request, or should have, and whose daemon has read the answers. A
        record counts with its last entry, and many entries take their time: each of them is progress.
        """
        now_ns = self._daemon.kernel.now_ns
        unread = {each.connection for each in life.wires if each.has_unread}
        logs = [] if life.logs is None else life.logs._by_id.values()
        former, self._unlogged = self._unlogged, {}
        for log in logs:
            waits_ns = log.writer.since_ns
            fails = log._failures and self._may_fail()
            is_held_up = log.over or fails or log._in_queue or log.stream.connection in unread
            if waits_ns is not None and not is_held_up:
                entries = self._daemon.objects.count_entries(log.writer._others | {log.writer.ledger_id})
                waiting = log, entries, waits_ns
                self._unlogged[waiting] = former.get(waiting, now_ns)
        for (log, *_), since_ns in self._unlogged.items():
            if self._waited_ns(since_ns) > _LOG_NS:
                raise Violation(
                    f"{self._daemon.name} leaves writes of {log.stream.name} out of its index log for more "
                    f"than {_LOG_NS // NS_PER_MS} ms"
                )
