"""The ledgers of index logs, and a model of the shim's `LogLedgers`, the daemon's way to them.

BookKeeper's rules kept here: a ledger has one writer, with appends stored in their order; opening it fences
the writer, and settles its length: every answered append counts, an unanswered one may; after a failed append
every later one to that ledger fails. Of the cursor: the pointer is one of its properties, written by
compare-and-set by its owner.

The bookies can be slow or away, and their stored data can be damaged, cut short or gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tests.sim.cursor import Cursor
from tests.sim.cursor_properties import CursorProperties
from tests.sim.kernel import NS_PER_MS, Kernel, Process
from tidegate.index.errors import UnreadableLogError
from tidegate.index.log.pointer import Pointer
from tidegate.plugin.wire.log_messages import LogAnswer, LogCode, LogOp, LogRequest

POINTER = "#pulsar.internal.tidegate.log"

_LATE_NS = 20_000 * NS_PER_MS  # twice as long as a daemon waits for an answer
_DOUBLED_NS = 1_000 * NS_PER_MS
_REFUSED_NS = 500 * NS_PER_MS
_REFUSED_SHARE = 0.5

Answer = Callable[[LogAnswer], None]


class Fate(StrEnum):
    """The fate of the answer to an executed request."""

    LOST = "lost"
    FAILED = "failed"
    LATE = "late"
    DOUBLED = "doubled"


class LogDamage(StrEnum):
    """The fate of a stored entry."""

    FLIPPED = "flipped"
    CUT = "cut"
    LOST = "lost"
    END_LOST = "end_lost"


@dataclass(slots=True)
class LogLedger:
    """A ledger. `answered`: number of answered appends; `None` among the entries: an unreadable one."""

    ledger_id: int
    writer: LogHome | None
    entries: list[bytes | None] = field(default_factory=list)
    answered: int = 0
    stored_ns: int = 0  # when the last append on its way arrives
    damaged: bool = False

    def copied(self) -> LogLedger:
        """An independent copy, as the bookies have it now."""
        return replace(self, entries=list(self.entries))


@dataclass(frozen=True, slots=True)
class StoredLogs:
    """The bookies' ledgers, and the last id given."""

    ledgers: dict[int, LogLedger]
    gone: frozenset[int]
    last_id: int


@dataclass(frozen=True, slots=True)
class Spoiling:
    """Until then `share` of the answers to such an operation, None: to any, have this fate."""

    op: LogOp | None
    fate: Fate
    share: float
    until_ns: int


@dataclass(slots=True)
class Trap:
    """Calls `spring` at the `left`-th such request from now."""

    op: LogOp
    left: int
    spring: Callable[[], None]


class LogBookies:
    """All ledgers of index logs.

    on_open: gets each opened ledger, before its writer is fenced. counts: whether that subscription's pointer
    names a ledger as the log, whoever has it.
    """

    def __init__(self, kernel: Kernel, io_ns: int, read_bytes: int) -> None:
        self.kernel = kernel
        self.io_ns = io_ns
        self.read_bytes = read_bytes
        self.ledgers: dict[int, LogLedger] = {}
        self.gone: set[int] = set()  # with their subscription; its daemon may read them still
        self.away_until_ns = 0
        self.trap: Trap | None = None
        self.spoiling: Spoiling | None = None
        self.on_open: Callable[[int], None] = lambda ledger_id: None
        self.counts: Callable[[str, int], bool] = lambda name, ledger_id: True
        self.troubled_ns = 0
        """Time of the last refused or spoiled request."""
        self._last_id = 1_000_000

    def copied(self) -> StoredLogs:
        """The ledgers now, while nobody writes."""
        ledgers = {each: ledger.copied() for each, ledger in self.ledgers.items()}
        return StoredLogs(ledgers, frozenset(self.gone), self._last_id)

    def put_back(self, former: StoredLogs) -> set[int]:
        """Return to an earlier state, and give ids from there on; returns those given since."""
        since = set(range(former.last_id + 1, self._last_id + 1))
        self.ledgers = {each: ledger.copied() for each, ledger in former.ledgers.items()}
        self.gone = {each for each in self.gone if each not in since} - former.ledgers.keys() | former.gone
        self._last_id = former.last_id
        return since

    def asked(self, op: LogOp) -> None:
        """Note a daemon's request, which may spring the trap."""
        trap = self.trap
        if trap is not None and trap.op is op:
            trap.left -= 1
            if trap.left <= 0:
                self.trap = None
                self.kernel.after(0, None, trap.spring)

    def fate(self, op: LogOp) -> Fate | None:
        """The fate of the answer to such an operation; None: it arrives in time, and once."""
        spoiling = self.spoiling
        if spoiling is None or self.kernel.now_ns > spoiling.until_ns or spoiling.op not in (None, op):
            return None
        if not self.kernel.chance(spoiling.share):
            return None
        self.troubled_ns = self.kernel.now_ns + _LATE_NS
        return spoiling.fate

    def create(self, writer: LogHome) -> LogLedger:
        """A ledger for appends by `writer`."""
        self._last_id += 1
        ledger = self.ledgers[self._last_id] = LogLedger(self._last_id, writer)
        return ledger

    def recover(self, ledger: LogLedger) -> int:
        """Fence the writer and settle the length; the last entry."""
        self.on_open(ledger.ledger_id)
        if ledger.writer is not None:
            ledger.writer = None
            del ledger.entries[self.kernel.random.randint(ledger.answered, len(ledger.entries)) :]
        return len(ledger.entries) - 1

    def trip_ns(self) -> int | None:
        """How long a request takes to arrive now; None: it is refused, nobody is there."""
        kernel = self.kernel
        away_ns = max(0, self.away_until_ns - kernel.now_ns)
        if away_ns:
            self.troubled_ns = self.away_until_ns
        if away_ns and kernel.chance(_REFUSED_SHARE):
            return None
        return away_ns + kernel.between_ns(self.io_ns // 4, self.io_ns)

    def damage(self, how: LogDamage) -> int | None:
        """Damage an entry of some ledger, or its end; the ledger, None without any."""
        found = [ledger for ledger in self.ledgers.values() if ledger.entries]
        if not found:
            return None
        luck = self.kernel.random
        ledger = found[luck.randrange(len(found))]
        at = luck.randrange(len(ledger.entries))
        entry = ledger.entries[at]
        ledger.damaged = True
        if how is LogDamage.END_LOST:
            # Its writer has lost it, too: numbers do not go back.
            ledger.writer = None
            del ledger.entries[at:]
        elif how is LogDamage.LOST or not entry:
            ledger.entries[at] = None
        elif how is LogDamage.CUT:
            ledger.entries[at] = entry[: luck.randrange(len(entry))]
        else:
            bit = luck.randrange(8 * len(entry))
            flipped = entry[bit // 8] ^ 1 << bit % 8
            ledger.entries[at] = entry[: bit // 8] + bytes([flipped]) + entry[bit // 8 + 1 :]
        return ledger.ledger_id


class LogHome:
    """Executes the daemon's requests about one subscription's index log, in one life of one cursor.

    `home`: where the broker keeps index logs, empty for nowhere. `began`: called with each new ledger.
    """

    def __init__(
        self,
        process: Process,
        bookies: LogBookies,
        cursor: Cursor,
        properties: CursorProperties,
        began: Callable[[int], None],
        home: str,
    ) -> None:
        self._kernel = bookies.kernel
        self._process = process
        self._bookies = bookies
        self._cursor = cursor
        self._properties = properties
        self._began = began
        self.home = home
        """Where logs are to be, for OPEN."""
        self._written: set[int] = set()
        self._opened: dict[int, int] = {}

    @property
    def pointer(self) -> str:
        """The pointer as this broker last read or wrote it."""
        return self._cursor.cursor_properties.get(POINTER, "")

    def ask(self, request: LogRequest, answer: Answer) -> None:
        """Execute it; `answer` is called once, later, unless the broker dies, or the answer is spoiled."""
        self._bookies.asked(request.op)
        answer = self._spoiled(request, answer)
        if request.op is LogOp.POINT:
            self._later(self._point, request, answer)
            return
        trip_ns = self._bookies.trip_ns()
        if request.op is LogOp.APPEND:
            self._append_later(request, trip_ns, answer)
        elif trip_ns is None:
            self._tell(answer, LogAnswer(LogCode.AWAY, message="no bookie is there"), _REFUSED_NS)
        else:
            self._kernel.after(trip_ns, self._process, self._do, request, answer)

    def close(self) -> None:
        """The tracker is forgotten: close everything open."""
        for ledger_id in self._written:
            ledger = self._bookies.ledgers.get(ledger_id)
            if ledger is not None and ledger.writer is self:
                ledger.writer = None
        self._written.clear()
        self._opened.clear()

    def delete_all(self) -> None:
        """The subscription goes, with every ledger named by the pointer."""
        for ledger_id in ledgers_of(self.pointer):
            self._bookies.ledgers.pop(ledger_id, None)
            self._bookies.gone.add(ledger_id)

    # ---- ledgers

    def _do(self, request: LogRequest, answer: Answer) -> None:
        ledger_id = request.ledger_id
        ledger = self._bookies.ledgers.get(ledger_id)
        result = LogAnswer(LogCode.OK)
        match request.op:
            case LogOp.CREATE:
                made = self._bookies.create(self)
                self._written.add(made.ledger_id)
                self._began(made.ledger_id)
                result = LogAnswer(LogCode.OK, made.ledger_id)
            case LogOp.OPEN if ledger is None:
                result = LogAnswer(LogCode.NO_LEDGER, message=f"there is no ledger {ledger_id}")
            case LogOp.OPEN:
                assert ledger is not None
                self._opened[ledger_id] = self._bookies.recover(ledger)
                result = LogAnswer(LogCode.OK, self._opened[ledger_id])
            case LogOp.READ:
                result = self._read(ledger, request)
            case LogOp.CLOSE:
                self._opened.pop(ledger_id, None)
                if ledger is not None and ledger.writer is self:
                    ledger.writer = None
            case LogOp.DELETE:
                self._opened.pop(ledger_id, None)
                self._written.discard(ledger_id)
                self._bookies.ledgers.pop(ledger_id, None)
        self._tell(answer, result)

    def _read(self, ledger: LogLedger | None, request: LogRequest) -> LogAnswer:
        last = self._opened.get(request.ledger_id, -1)
        found: list[bytes] = []
        wanted: Sequence[bytes | None] = ()
        if ledger is not None and 0 <= request.first <= request.last <= last:
            wanted = ledger.entries[request.first : request.last + 1]
        for entry in wanted:
            if entry is None or (found and sum(map(len, found)) + len(entry) > self._bookies.read_bytes):
                break
            found.append(entry)
        if not found:
            return LogAnswer(
                LogCode.NO_LEDGER,
                message=f"ledger {request.ledger_id} is not open, or has no entry {request.first}",
            )
        return LogAnswer(LogCode.OK, entries=tuple(found))

    def _append_later(self, request: LogRequest, trip_ns: int | None, answer: Answer) -> None:
        ledger = self._bookies.ledgers.get(request.ledger_id)
        if ledger is None or request.ledger_id not in self._written:
            self._tell(answer, LogAnswer(LogCode.NO_LEDGER, message="no such ledger is open"))
            return
        if trip_ns is None:
            self._written.discard(request.ledger_id)
            self._tell(answer, LogAnswer(LogCode.AWAY, message="no bookie is there"), _REFUSED_NS)
            return
        ledger.stored_ns = max(ledger.stored_ns + 1, self._kernel.now_ns + trip_ns)
        self._kernel.at(ledger.stored_ns, self._process, self._append, ledger, request.entry, answer)

    def _append(self, ledger: LogLedger, entry: bytes, answer: Answer) -> None:
        if ledger.writer is not self or ledger.ledger_id not in self._written:
            self._tell(answer, LogAnswer(LogCode.FENCED, message="somebody else has opened it"))
            return
        ledger.entries.append(entry)
        io_ns = self._kernel.between_ns(self._bookies.io_ns // 4, self._bookies.io_ns)
        self._kernel.after(io_ns, self._process, self._appended, ledger, len(ledger.entries) - 1, answer)

    def _appended(self, ledger: LogLedger, number: int, answer: Answer) -> None:
        if ledger.writer is not self:
            answer(LogAnswer(LogCode.FENCED, message="somebody else has opened it"))
            return
        ledger.answered = max(ledger.answered, number + 1)
        answer(LogAnswer(LogCode.OK, number))

    # ---- the pointer

    def _point(self, request: LogRequest, answer: Answer) -> None:
        if self.pointer != request.old:
            self._tell(answer, LogAnswer(LogCode.STALE, message=f"the pointer is {self.pointer}"))
            return

        def done(written: bool) -> None:
            refused = LogCode.STALE if self._cursor.closed else LogCode.AWAY
            answer(LogAnswer(LogCode.OK if written else refused))

        if self._cursor.closed:
            self._tell(answer, LogAnswer(LogCode.STALE, message="the cursor is closed"))
            return
        self._properties.put(POINTER, request.new, done)

    # ---- answers

    def _spoiled(self, request: LogRequest, answer: Answer) -> Answer:
        """The fate of a request's answer shows once the request is executed."""

        def tell(result: LogAnswer) -> None:
            fate = self._bookies.fate(request.op) if result.code is LogCode.OK else None
            if fate is not None:
                self._kernel.note(f"the answer to {request.op.name} {request.ledger_id} is {fate.value}")
            if fate is Fate.FAILED:
                if request.op is LogOp.APPEND:
                    self._written.discard(request.ledger_id)  # after a failure every later one fails
                answer(LogAnswer(LogCode.AWAY, message="nobody has heard what became of it"))
            elif fate is Fate.LATE:
                self._kernel.after(self._kernel.between_ns(0, _LATE_NS), self._process, answer, result)
            elif fate is not Fate.LOST:
                answer(result)
            if fate is Fate.DOUBLED:
                self._kernel.after(self._kernel.between_ns(0, _DOUBLED_NS), self._process, answer, result)

        return tell

    # ---- time

    def _later(self, call: Callable[..., None], *args: object) -> None:
        io_ns = self._bookies.io_ns
        self._kernel.after(self._kernel.between_ns(io_ns // 4, io_ns), self._process, call, *args)

    def _tell(self, answer: Answer, result: LogAnswer, within_ns: int | None = None) -> None:
        within_ns = self._bookies.io_ns if within_ns is None else within_ns
        self._kernel.after(self._kernel.between_ns(0, within_ns), self._process, answer, result)


def ledgers_of(text: str) -> tuple[int, ...]:
    """The ledgers named by a pointer."""
    try:
        pointer = Pointer.parse(text)
    except UnreadableLogError:
        return ()
    return () if pointer is None else pointer.ledgers


def current_ledger(text: str) -> int | None:
    """The ledger that a pointer names as the log, None without one."""
    try:
        pointer = Pointer.parse(text)
    except UnreadableLogError:
        return None
    return None if pointer is None or pointer.ledger_id < 0 else pointer.ledger_id
