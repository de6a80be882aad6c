"""The content of each ledger of an index log, for an observer who has seen all but it.

A ledger has at least everything durable at its making, and its writer's later claims; of later changes it may
have any part. So a daemon that has read it may report this, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tests.sim.belief import Belief, Told

Account = list[tuple[Told, int]]
"""A daemon's changes, in order, each with the generation of its stream."""


@dataclass(slots=True)
class LogBelief:
    """One ledger's content.

    told: all changes of the subscription at the writer's daemon. since: how many of them are certain. began:
    the same two at the ledger's making, for one that may lack its end.
    """

    writer: object
    told: Account
    belief: Belief
    since: int
    began: tuple[Belief, int]
    end: int | None = None
    damaged: bool = False


class LogBeliefs:
    """All ledgers, whoever wrote them. A writer is a daemon's disk (`Promises`)."""

    def __init__(self) -> None:
        self.have_damage = False  # some ledger has
        self.others_put_in = False  # an index has entries from another source than a broker
        self._readers: dict[int, set[object]] = {}  # daemons that went on from a ledger
        self.asked_ms: dict[str, dict[tuple[int, int], set[int]]] = {}  # requested times, by subscription
        self._logs: dict[int, LogBelief] = {}

    def began(self, ledger_id: int, writer: object, belief: Belief, told: Account) -> None:
        """A ledger was made; its snapshot will have at least this."""
        self._logs[ledger_id] = LogBelief(writer, told, belief, len(told), (belief, len(told)))

    def complete(self, ledger_id: int, writer: object, belief: Belief) -> None:
        """The writer claims that the ledger has everything durable: this, and perhaps later changes."""
        log = self._logs.get(ledger_id)
        if log is not None and log.writer is writer and log.end is None:
            log.belief, log.since = belief, len(log.told)

    def ended(self, ledger_id: int) -> None:
        """Nobody appends to the ledger any more."""
        log = self._logs.get(ledger_id)
        if log is not None and log.end is None:
            log.end = len(log.told)

    def damaged(self, ledger_id: int) -> None:
        """The ledger may lack something, from some point on."""
        self.have_damage = True
        log = self._logs.get(ledger_id)
        if log is not None:
            log.damaged = True

    def is_damaged(self, ledger_id: int) -> bool:
        """True if the ledger may lack something."""
        log = self._logs.get(ledger_id)
        return log is not None and log.damaged

    def writer_died(self, writer: object) -> None:
        """Nobody appends to any of its ledgers any more."""
        for ledger_id, log in self._logs.items():
            if log.writer is writer:
                self.ended(ledger_id)

    def copied(self, ledger_ids: Iterable[int]) -> dict[int, LogBelief]:
        """The content of these ledgers, to which nobody appends."""
        found = {each: self._logs[each] for each in ledger_ids if each in self._logs}
        return {each: _closed(log) for each, log in found.items()}

    def put_back(self, former: Mapping[int, LogBelief], ledger_ids: Iterable[int]) -> None:
        """These ledgers are gone, and those are as they were."""
        for each in ledger_ids:
            self._logs.pop(each, None)
        self._logs.update((each, replace(log)) for each, log in former.items())

    def is_of(self, ledger_id: int, writer: object) -> bool:
        """True if this daemon has written the ledger, or nobody has."""
        log = self._logs.get(ledger_id)
        return log is None or log.writer is writer

    def writer(self, ledger_id: int) -> object | None:
        """The ledger's writer, None without one."""
        log = self._logs.get(ledger_id)
        return None if log is None else log.writer

    def went_on(self, ledger_id: int, reader: object) -> None:
        """A daemon has taken an index from the ledger."""
        self._readers.setdefault(ledger_id, set()).add(reader)

    def has_other_reader(self, ledger_id: int, writer: object) -> bool:
        """True if another daemon went on from the ledger: its writer no longer has all."""
        return bool(self._readers.get(ledger_id, set()) - {writer})

    def read(self, ledger_id: int, *, cut: bool = False) -> Belief:
        """The knowledge of a reader of the ledger; `cut`: only of its beginning."""
        log = self._logs.get(ledger_id)
        if log is None:
            return Belief()
        belief, since = log.began if cut or log.damaged else (log.belief, log.since)
        belief = belief.copy()
        for change, generation in log.told[since : log.end]:
            belief.fold(change, generation, certain=False)
        return belief


def _closed(log: LogBelief) -> LogBelief:
    return replace(log, end=len(log.told) if log.end is None else log.end)
