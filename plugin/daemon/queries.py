"""What control clients ask and put in: each request to who answers it, in JSON.

Invariants: every request is answered, what is wrong with it in one line; an answer that takes long is put
together over several turns of the loop; of a connection so many are under way at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.index import StorageError
from tidegate.plugin.daemon import width
from tidegate.plugin.daemon.intake import Intake, refusal
from tidegate.plugin.daemon.recorder import Recorder
from tidegate.plugin.errors import UserError
from tidegate.plugin.telemetry import report
from tidegate.plugin.wire.messages import Ingest, json_body

if TYPE_CHECKING:
    import structlog

Tell = Callable[[bytes], None]
UNANSWERED_MAX = 16  # of one connection: a read brings thousands of requests, an answer may have megabytes


class Asked(report.Daemon, Protocol):
    """What the queries ask of the engine."""

    @property
    def storage_failing(self) -> bool:
        """Whether nothing can be made durable."""
        ...

    def when_durable(self, token: int, tell: Callable[[StorageError | None], None]) -> None:
        """Call `tell` once everything up to `token` is durable, or with the error if that fails first."""
        ...


class Queries:
    """The requests of control clients, and the answers that are being put together."""

    def __init__(
        self,
        asked: Asked,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
        *,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._asked = asked
        self._intake = intake
        self._loop = loop
        self._log = log
        self._answers: set[asyncio.Task[bytes]] = set()
        self._unanswered: Counter[object] = Counter()
        self.recorder = Recorder(asked.clock)

    def stop(self) -> None:
        """Answer nothing that is not answered yet."""
        for task in self._answers:
            task.cancel()

    def gone(self, connection: object) -> None:
        """A connection is closed: what it had taken is free."""
        self._intake.gone(connection)
        self.recorder.gone(connection)

    def ask(self, connection: object, request: dict[str, object], reply: Tell) -> None:
        """Answer a query: `reply` is called now or later, once for each frame of the answer."""
        try:
            self._require_room(connection)
            match request.get("what"):
                case "status":
                    self._answer(connection, self._status(request), reply)
                case "width":
                    self._width(connection, request, reply)
                case "take-in":
                    reply(json_body(self._intake.take(connection, request)))
                case "positions":
                    for part in self._intake.positions(request):
                        reply(json_body(part))
                case "entries":
                    self._answer(connection, _told(self._intake.entries(request)), reply)
                case "record":
                    reply(json_body(self.recorder.ask(connection, request)))
                case what:
                    known = "'status', 'width', 'take-in', 'positions', 'entries', 'record'"
                    raise UserError(f"unknown query {what!r}, known: {known}")
        except UserError as error:
            reply(refusal(error))

    def ingest(self, connection: object, message: Ingest, reply: Tell) -> None:
        """Put entries in; `reply` is called once they are durable."""
        try:
            self._require_room(connection)
        except UserError as error:
            reply(refusal(error))
        else:
            self._answer(connection, _told(self._intake.put(connection, message)), reply)

    def _require_room(self, connection: object) -> None:
        if self._unanswered[connection] >= UNANSWERED_MAX:
            raise UserError(
                f"{UNANSWERED_MAX} requests of this connection are unanswered: wait for the answers"
            )

    def _answer(self, connection: object, answer: Coroutine[Any, Any, bytes], reply: Tell) -> None:
        """Reply when the answer is put together, which takes several turns of the loop."""
        task = self._loop.create_task(answer)
        self._answers.add(task)
        self._unanswered[connection] += 1

        def done(_: asyncio.Task[bytes]) -> None:
            self._answers.discard(task)
            self._unanswered[connection] -= 1
            if not self._unanswered[connection]:
                del self._unanswered[connection]
            if not task.cancelled():
                reply(task.result())

        task.add_done_callback(done)

    def _status(self, request: dict[str, object]) -> Coroutine[Any, Any, bytes]:
        limit = request.get("subscriptions_max", report.SUBSCRIPTIONS_MAX)
        if not isinstance(limit, int) or limit < 0:
            raise UserError("subscriptions_max must be a number, 0 or more")
        return report.status(self._asked, min(limit, report.SUBSCRIPTIONS_MAX))

    def _width(self, connection: object, query: dict[str, object], reply: Tell) -> None:
        request = width.WidthRequest.of(query)
        indexes = width.find(self._asked.catalog, request.subscription)
        if not request.changes:
            self._answer(connection, width.answer(request, indexes), reply)
            return
        if self._asked.storage_failing:
            raise UserError("the store is failing, nothing can be made durable: try again later")
        token = width.apply(request, indexes)
        self._log.info("slice width set", asked=request._asdict(), subscriptions=len(indexes))

        def tell(error: StorageError | None) -> None:
            if error is None:
                self._answer(connection, width.answer(request, indexes), reply)
            else:
                lost = f"the store fails, the new width is lost if the daemon stops now: {error}"
                reply(json_body({"error": lost}))

        self._asked.when_durable(token, tell)


async def _told(answer: Coroutine[Any, Any, dict[str, Any]]) -> bytes:
    try:
        return json_body(await answer)
    except UserError as error:
        return refusal(error)
