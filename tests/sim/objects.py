"""A store of objects for index logs, which each daemon reaches over its own network.

Its rules: of two creations of one name the second is refused; an object is there whole, or not at all; a sent
request takes effect some time, even if nobody waits for it any more, and its daemon is dead. Answers may come
in any order, and may be wrong about a request's fate. It can be slow or away, and its objects can be damaged
or gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from tests.sim.kernel import NS_PER_MS, Kernel, Process
from tests.sim.log_home import LogBookies, LogDamage
from tidegate.index import Identity, SubscriptionName
from tidegate.index.log.home import Home
from tidegate.index.log.object_home import ABOUT, FENCE, About, ObjectHome
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER, BrokerHome, LogRequests
from tidegate.plugin.daemon.homes.homes import Homes
from tidegate.plugin.wire.log_messages import LogOp
from tidegate.plugin.wire.messages import Open

URL = "file:///simulated"

_REFUSED_NS = 500 * NS_PER_MS
_UNANSWERED_SHARE = 0.02
_LOST_WITH_DAEMON_SHARE = 0.5
_REMOVED_LATER_SHARE = 0.3

Began = Callable[[str, int], None]


class SimObjects:
    """All objects. `bookies` decides how slow it is, and whether it is there, and gets its requests, too."""

    def __init__(self, kernel: Kernel, bookies: LogBookies) -> None:
        self.kernel = kernel
        self.bookies = bookies
        self.found: dict[str, bytes] = {}

    def entries_of(self, folder: str) -> list[str]:
        """The names of a ledger's entries, in order."""
        return sorted(name for name in self.found if name.startswith(f"{folder}/") and name[-1].isdecimal())

    def count_entries(self, ledger_ids: Collection[int]) -> int:
        """Entries of these ledgers, here and at the bookies."""
        folders = {f"{each:020}" for each in ledger_ids}
        here = sum(name.split("/")[1] in folders for name in self.found)
        ledgers = self.bookies.ledgers
        return here + sum(len(ledgers[each].entries) for each in ledger_ids if each in ledgers)

    def has_ledger(self, ledger_id: int) -> bool:
        """True if a ledger is here or at the bookies; a gone one does not come back."""
        about = f"/{ledger_id:020}/{ABOUT}"
        return ledger_id in self.bookies.ledgers or any(name.endswith(about) for name in self.found)

    def damage(self, how: LogDamage) -> int | None:
        """Damage an entry of some ledger, or its end; the ledger, None without any."""
        names = sorted(name for name in self.found if name[-1].isdecimal())
        if not names:
            return None
        luck = self.kernel.random
        name = names[luck.randrange(len(names))]
        folder = name.rpartition("/")[0]
        entry = self.found[name]
        if how is LogDamage.END_LOST:
            for each in self.entries_of(folder):
                if each >= name:
                    del self.found[each]
        elif how is LogDamage.LOST or not entry:
            del self.found[name]
        elif how is LogDamage.CUT:
            self.found[name] = entry[: luck.randrange(len(entry))]
        else:
            at = luck.randrange(len(entry))
            self.found[name] = entry[:at] + bytes([entry[at] ^ 1 << luck.randrange(8)]) + entry[at + 1 :]
        return int(folder.rpartition("/")[2])


class Reached:
    """The store for one daemon and one subscription. Implements `Objects`.

    began: called with each new ledger.
    """

    creates_once = True

    def __init__(self, objects: SimObjects, began: Callable[[int], None]) -> None:
        self._objects = objects
        self._began = began

    def create(self, name: str, data: bytes) -> None:
        """See `Objects`."""
        found, bookies = self._objects.found, self._objects.bookies
        folder, _, last = name.rpartition("/")
        bookies.asked(LogOp.CREATE if last == ABOUT else LogOp.APPEND)
        if name in found:
            raise FileExistsError(name)
        ledger_id = int(folder.rpartition("/")[2])
        if last == ABOUT:
            self._began(ledger_id)
        elif data == FENCE:
            bookies.on_open(ledger_id)
        found[name] = data

    def read(self, name: str) -> bytes:
        """See `Objects`."""
        self._objects.bookies.asked(LogOp.READ)
        if name not in self._objects.found:
            raise FileNotFoundError(name)
        return self._objects.found[name]

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Objects`."""
        self._objects.bookies.asked(LogOp.OPEN)
        return {
            name.rpartition("/")[2]: len(data)
            for name, data in self._objects.found.items()
            if name.rpartition("/")[0] == folder
        }

    def remove(self, name: str) -> None:
        """See `Objects`. One object goes after the other, in any order; a reader may come in between."""
        objects, bookies = self._objects, self._objects.bookies
        bookies.asked(LogOp.DELETE)
        names = [each for each in objects.found if each == name or each.startswith(f"{name}/")]
        luck = objects.kernel.random
        for each in luck.sample(names, len(names)):
            if len(names) > 1 and luck.random() < _REMOVED_LATER_SHARE:
                objects.kernel.after(luck.randrange(bookies.io_ns), None, objects.found.pop, each, None)
            else:
                del objects.found[each]
            if "/" not in name:
                bookies.gone.add(int(each.split("/")[1]))


class SimHomes(Homes):
    """The homes of one life of a daemon; BookKeeper's is the usual one."""

    def __init__(
        self,
        objects: SimObjects,
        process: Process,
        loop: asyncio.AbstractEventLoop,
        tail_entries_max: int,
        began: Began,
    ) -> None:
        self._objects = objects
        self._process = process
        self._loop = loop
        self._tail_entries_max = tail_entries_max
        self._began = began

    def close(self) -> None:
        """Nothing to close."""

    def _home(self, kind: str, requests: LogRequests, stream_id: int, request: Open) -> Home:
        at_broker = BrokerHome(requests, stream_id)
        if kind == BOOKKEEPER:
            return at_broker
        name = SubscriptionName(request.topic, request.subscription)
        reached = Reached(self._objects, partial(self._began, name.subscription))
        return ObjectHome(
            lambda: reached,
            About(Identity(name, request.incarnation), request.epoch),
            kind=kind,
            interval_ms=0,
            tail_entries_max=self._tail_entries_max,
            random=lambda: self._objects.kernel.random.getrandbits(32),
            offload=self._offload,
            point=at_broker.point,
        )

    def _offload(self, work: Callable[[], object]) -> Awaitable[object]:
        kernel = self._objects.kernel
        answer: asyncio.Future[object] = self._loop.create_future()
        trip_ns = self._objects.bookies.trip_ns()
        if trip_ns is None:
            error = OSError("no store is there")
            kernel.after(kernel.between_ns(0, _REFUSED_NS), self._process, self._tell, answer, error)
        else:
            # A request that has left the machine takes effect, whatever becomes of its sender.
            sender = self._process if kernel.chance(_LOST_WITH_DAEMON_SHARE) else None
            kernel.after(trip_ns, sender, self._carry_out, work, answer)
        return answer

    def _carry_out(self, work: Callable[[], object], answer: asyncio.Future[object]) -> None:
        kernel = self._objects.kernel
        error: Exception | None = None
        try:
            work()
        except OSError as refused:
            error = refused
        if kernel.chance(_UNANSWERED_SHARE):
            error = OSError("it has not answered")
            self._objects.bookies.troubled_ns = kernel.now_ns
        io_ns = self._objects.bookies.io_ns
        kernel.after(kernel.between_ns(0, io_ns), self._process, self._tell, answer, error)

    def _tell(self, answer: asyncio.Future[object], error: Exception | None) -> None:
        self._loop.call_soon(_settle, answer, error)


def _settle(answer: asyncio.Future[object], error: Exception | None) -> None:
    if answer.done():
        return  # nobody waits for it any more
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
