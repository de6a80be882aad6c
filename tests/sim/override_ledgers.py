"""The bookies' ledgers of overrides: the times of moved messages, as in docs/format.md.

Reduced as in `bookkeeper`: opening a ledger fences its writer, appends arrive in the order of the requests. A
request may fail on purpose (`Failing`), executed or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.sim.kernel import Kernel, Process

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """`left` have no override any more, then `moved` have these."""

    moved: dict[Position, int]
    left: frozenset[Position] = frozenset()


@dataclass(slots=True)
class OverrideLedger:
    """`arrived_ns`: when the last append on its way arrives."""

    ledger_id: int
    fenced: bool = False
    entries: list[Entry] = field(default_factory=list)
    arrived_ns: int = 0


@dataclass(slots=True)
class Failing:
    """The `left`-th request from now fails; `done`: it is executed nevertheless."""

    left: int
    done: bool


Answer = Callable[[OverrideLedger | None], None]


class OverrideLedgers:
    """All of them. An answer is the ledger, or None if the request has failed."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._ledgers: dict[int, OverrideLedger] = {}
        self._last_id = 2_000_000
        self.failing: Failing | None = None

    def copied(self) -> tuple[dict[int, OverrideLedger], int]:
        """The ledgers now, and the last id given."""
        ledgers = {each: _copied(ledger) for each, ledger in self._ledgers.items()}
        return ledgers, self._last_id

    def put_back(self, former: tuple[dict[int, OverrideLedger], int]) -> None:
        """Return to an earlier state, which nobody writes to."""
        self._ledgers = {each: replace(_copied(one), fenced=True) for each, one in former[0].items()}
        self._last_id = former[1]

    # ---- requests of a broker; io_ns: how long one takes

    def create(self, process: Process, io_ns: int, answer: Answer) -> None:
        """A new ledger."""
        refused = self._fails()
        self._last_id += 1
        ledger = self._ledgers[self._last_id] = OverrideLedger(self._last_id)
        self._kernel.after(io_ns, process, answer, None if refused is not None else ledger)

    def append(
        self, process: Process, io_ns: int, ledger: OverrideLedger, entry: Entry, answer: Answer
    ) -> None:
        """The bookie writes it whatever becomes of the broker, unless the ledger was opened."""
        failing = self._fails()
        arrives_ns = ledger.arrived_ns = max(self._kernel.now_ns + io_ns // 2, ledger.arrived_ns)

        def arrive() -> None:
            written = not ledger.fenced and ledger.ledger_id in self._ledgers
            if written and (failing is None or failing.done):
                ledger.entries.append(entry)
            heard = ledger if written and failing is None else None
            self._kernel.after(io_ns - io_ns // 2, process, answer, heard)

        self._kernel.at(arrives_ns, None, arrive)

    def open(self, process: Process, io_ns: int, ledger_id: int, answer: Answer, *, gone: Answer) -> None:
        """Read it; nobody appends to it any more. `gone`: there is none."""
        failing = self._fails()
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None:
            ledger.fenced = True
        if failing is not None:
            self._kernel.after(io_ns, process, answer, None)
        elif ledger is None:
            self._kernel.after(io_ns, process, gone, None)
        else:
            self._kernel.after(io_ns, process, answer, ledger)

    def delete(self, ledger_id: int) -> None:
        """It is gone."""
        self._ledgers.pop(ledger_id, None)

    def _fails(self) -> Failing | None:
        failing = self.failing
        if failing is None:
            return None
        failing.left -= 1
        if failing.left > 0:
            return None
        self.failing = None
        self._kernel.disturb()
        return failing


def _copied(ledger: OverrideLedger) -> OverrideLedger:
    return replace(ledger, entries=list(ledger.entries))
