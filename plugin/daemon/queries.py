"""The requests of control clients, questions and entries: each goes to its part, the answer is JSON.

Invariants: every request is answered, with one line if it is wrong or met a bug; a long answer takes several
turns of the loop, at the client's speed; a connection has a bounded number of requests under way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidegate.index import DelayIndex, StorageError, SubscriptionName
from tidegate.plugin.api.api import Api, Request, Response
from tidegate.plugin.api.problem import ProblemError
from tidegate.plugin.daemon import report, width
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.glob import STAR
from tidegate.plugin.daemon.ingestion import Ingestion, refusal
from tidegate.plugin.daemon.message_queries import MessageQueries
from tidegate.plugin.daemon.recorder import Recorder
from tidegate.plugin.daemon.selection import matching, name_of
from tidegate.plugin.daemon.stream import Link
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.seldom import Seldom, kind_of
from tidegate.plugin.telemetry.lately import lately
from tidegate.plugin.telemetry.page import page
from tidegate.plugin.telemetry.survey import in_turns
from tidegate.plugin.wire.control_messages import HttpRequest, HttpResponse, Ingest, json_body

if TYPE_CHECKING:
    import structlog

Tell = Callable[[bytes], None]
Respond = Callable[[HttpResponse], None]
_KNOWN = (
    "status",
    "width",
    "tide",
    "waiting",
    "show",
    "cancel",
    "reschedule",
    "release",
    "pace",
    "take-in",
    "index",
    "positions",
    "entries",
    "record",
)
UNANSWERED_MAX = 16  # of one connection: a read brings thousands of requests, an answer may have megabytes


class Queries:
    """The requests of control clients, and the answers under way.

    storage_failing: true while nothing can be made durable.
    """

    def __init__(
        self,
        daemon: report.Daemon,
        ingestion: Ingestion,
        messages: MessageQueries,
        loop: asyncio.AbstractEventLoop,
        *,
        storage_failing: Callable[[], bool],
        committer: Committer,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._daemon = daemon
        self._storage_failing = storage_failing
        self._searching = asyncio.Lock()
        self._ingestion = ingestion
        self._messages = messages
        self._committer = committer
        self._loop = loop
        self._log = log
        self._seldom = Seldom(daemon.clock.monotonic_ns)
        self.api = Api(
            messages.answer,
            daemon.clock.now_ms,
            status={
                "held": lately(lambda: report.status(daemon, report.SUBSCRIPTIONS_MAX)).get,
                "due": lately(lambda: report.status(daemon, report.PAGE_SUBSCRIPTIONS, by_due=True)).get,
            },
            status_among=self._status_among,
            page=_page,
            log=log,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: dict[asyncio.Task[None], Link] = {}
        self._unanswered: Counter[Link] = Counter()
        self._room: dict[Link, asyncio.Event] = {}
        self.recorder = Recorder(daemon.clock)

    def stop(self) -> None:
        """Answer nothing more."""
        for task in self._tasks:
            task.cancel()

    def writable(self, connection: Link) -> None:
        """The connection takes data again."""
        room = self._room.pop(connection, None)
        if room is not None:
            room.set()

    def gone(self, connection: Link) -> None:
        """End a connection's share: its answers are dropped, and its subscriptions are free."""
        for task, asked in self._telling.items():
            if asked is connection:
                task.cancel()
        self._room.pop(connection, None)
        self._ingestion.gone(connection)
        self.recorder.gone(connection)

    def ask(self, connection: Link, request: dict[str, object], reply: Tell) -> None:
        """Answer a query: `reply` is called now or later, once for each frame of the answer."""
        try:
            self._require_room(connection)
            match request.get("what"):
                case "status":
                    self._answer(connection, self._status(request), reply)
                case "width":
                    self._width(connection, request, reply)
                case "take-in":
                    reply(json_body(self._ingestion.take_in(connection, request)))
                case "index":
                    reply(json_body(self._ingestion.about(request)))
                case "positions":
                    self._answer(connection, self._positions(request), reply)
                case "entries":
                    self._answer(connection, self._entries(request), reply)
                case "record":
                    self._answer(connection, self._recorded(connection, request), reply)
                case "tide" | "waiting" | "show":
                    self._answer(connection, self._looked(request), reply)
                case "cancel" | "reschedule" | "release" | "pace":
                    self._do(connection, self._changed(request, reply, connection.process))
                case what:
                    raise UserError(f"unknown query {what!r}, known: {', '.join(map(repr, _KNOWN))}")
        except Exception as error:
            reply(self._refused(error))

    def ingest(self, connection: Link, message: Ingest, reply: Tell) -> None:
        """Put entries in; `reply` is called once they are durable."""
        try:
            self._require_room(connection)
        except UserError as error:
            reply(refusal(error))
        else:
            self._do(connection, self._put(connection, message, reply))

    def respond(self, connection: Link, request: HttpRequest, respond: Respond) -> None:
        """Answer a request of the API; `respond` is called once."""
        try:
            self._require_room(connection)
        except UserError as error:
            refused = Response.of(ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)))
            respond(_framed(refused))
        else:
            self._do(connection, self._respond(request, respond))

    async def _respond(self, request: HttpRequest, respond: Respond) -> None:
        async def body() -> bytes:
            return request.body

        path, _, query = request.target.partition("?")
        role = f"{request.role or 'anybody'}, over the broker"
        # The role may not know of other tenants' topics.
        asked = Request(request.method, path, query, body, role, hints=False)
        respond(_framed(await self.api.respond(asked)))

    def _require_room(self, connection: Link) -> None:
        if self._unanswered[connection] >= UNANSWERED_MAX:
            raise UserError(
                f"{UNANSWERED_MAX} requests of this connection are unanswered: wait for the answers"
            )

    def _answer(self, connection: Link, answers: AsyncIterator[bytes], reply: Tell) -> None:
        """Send the parts of an answer over several turns of the loop, each when there is room."""

        async def answer() -> None:
            try:
                await self._room_for(connection)
                async for part in answers:
                    reply(part)
                    await self._room_for(connection)
            except Exception as error:
                reply(self._refused(error))

        task = self._do(connection, answer())
        self._telling[task] = connection
        task.add_done_callback(lambda _: self._telling.pop(task))

    def _do(self, connection: Link, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        self._begin(connection)

        def done(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._end(connection)

        task.add_done_callback(done)
        return task

    def _begin(self, connection: Link) -> None:
        self._unanswered[connection] += 1

    def _end(self, connection: Link) -> None:
        self._unanswered[connection] -= 1
        if not self._unanswered[connection]:
            del self._unanswered[connection]

    async def _room_for(self, connection: Link) -> None:
        """Return when the client takes more."""
        while not connection.writable:
            await self._room.setdefault(connection, asyncio.Event()).wait()

    async def _put(self, connection: Link, message: Ingest, reply: Tell) -> None:
        try:
            reply(json_body(await self._ingestion.put(connection, message)))
        except Exception as error:
            reply(self._refused(error))

    def _refused(self, error: Exception) -> bytes:
        """The answer with the reason why nothing was done; even a bug leaves no request without one."""
        if isinstance(error, UserError):
            return refusal(error)
        more = self._seldom.more(kind_of(error))
        if more is not None:
            self._log.error("a query failed unexpectedly; report it with the log", exc_info=error, **more)
        return refusal(UserError(f"a bug in the daemon, its log has more: {error!r}"))

    async def _positions(self, request: dict[str, object]) -> AsyncIterator[bytes]:
        for part in self._ingestion.positions(request):
            yield json_body(part)
            await asyncio.sleep(0)

    async def _recorded(self, connection: Link, request: dict[str, object]) -> AsyncIterator[bytes]:
        yield json_body(self.recorder.ask(connection, request))

    async def _looked(self, request: dict[str, object]) -> AsyncIterator[bytes]:
        yield json_body(await self._messages.answer(request))

    async def _changed(self, request: dict[str, object], reply: Tell, peer: str | None) -> None:
        """Change, and answer; outlives its client, unlike ``_answer``: a change must come to its end."""
        try:
            reply(json_body(await self._messages.answer(request, peer)))
        except Exception as error:
            reply(self._refused(error))

    async def _entries(self, request: dict[str, object]) -> AsyncIterator[bytes]:
        yield json_body(await self._ingestion.entries(request))

    async def _status(self, request: dict[str, object]) -> AsyncIterator[bytes]:
        limit = request.get("subscriptions_max", report.SUBSCRIPTIONS_MAX)
        if not isinstance(limit, int) or limit < 0:
            raise UserError("subscriptions_max must be a number, 0 or more")
        sort = request.get("sort", "held")
        if sort not in {"held", "due"}:
            raise UserError("sort must be held or due")
        topic, subscription = name_of(request, optional=True)
        among = None
        if (topic, subscription) != (STAR, STAR):
            among = matching(self._daemon.catalog, topic, subscription)
        yield await report.status(
            self._daemon, min(limit, report.SUBSCRIPTIONS_MAX), by_due=sort == "due", among=among
        )

    async def _status_among(self, sort: str, text: str) -> bytes:
        """The status of the subscriptions that contain a text, as the page writes them. One at a time: each
        costs a look at all names.
        """
        wanted = text.casefold()
        async with self._searching:
            indexes = self._daemon.catalog
            among = [one async for one in in_turns(indexes) if wanted in _told(one.name).casefold()]
            return await report.status(
                self._daemon, report.PAGE_SUBSCRIPTIONS, by_due=sort == "due", among=among
            )

    def _width(self, connection: Link, query: dict[str, object], reply: Tell) -> None:
        request = width.WidthRequest.of(query)
        indexes = width.find(self._daemon.catalog, request.subscription)
        if not request.changes:
            self._answer(connection, _widths(request, indexes), reply)
            return
        if self._storage_failing():
            raise UserError("the store is failing, nothing can be made durable: try again later")
        token = width.apply(request, indexes)
        self._log.info("slice width set", asked=request._asdict(), subscriptions=len(indexes))
        self._begin(connection)

        def tell(error: StorageError | None) -> None:
            self._end(connection)
            if error is None:
                self._answer(connection, _widths(request, indexes), reply)
            else:
                lost = f"the store fails, the new width is lost if the daemon stops now: {error}"
                reply(json_body({"error": lost}))

        self._committer.after(token, tell)


def _told(name: SubscriptionName) -> str:
    return f"{name.topic}, {name.subscription}"


def _page() -> Response:
    body, headers = page()
    return Response(HTTPStatus.OK, headers["Content-Type"], body, headers)


def _framed(response: Response) -> HttpResponse:
    return HttpResponse(response.status, response.content_type, response.body)


async def _widths(request: width.WidthRequest, indexes: list[DelayIndex]) -> AsyncIterator[bytes]:
    yield await width.answer(request, indexes)
