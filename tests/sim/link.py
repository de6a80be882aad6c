"""The shim's one connection to its daemon: connects with backoff, greets, keeps the heartbeat, numbers the
streams, and lets a tracker follow another one of the same subscription.

Uses the real codec. A frame of the daemon against docs/protocol.md is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.sim.bookkeeper import key_of
from tests.sim.clocks import MachineClock
from tests.sim.kernel import NS_PER_MS, START_MS, Event, Kernel, Process, Violation
from tests.sim.outbox import Change
from tests.sim.promises import Promises, StreamWatch
from tests.sim.shim import Stream, Tracker
from tests.sim.wire import ClientEnd, Wire
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.log_messages import LogAnswer, LogRequest
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Cancel,
    Cancelled,
    Close,
    Credit,
    Decided,
    Due,
    Durable,
    Error,
    Held,
    Hello,
    MarkDelete,
    Message,
    Move,
    Open,
    Pace,
    Peek,
    Peeked,
    Ping,
    Pong,
    Reschedule,
    Rescheduled,
    Role,
    Standing,
    Unack,
    Unheld,
    Welcome,
)

_FIRST_BACKOFF_MS = 20
_MAX_BACKOFF_MS = 500
_DRAIN_NS = NS_PER_MS
_GREETING_MS = 5_000
_TICK_MS = 100
_RESTART_MS = 1_000
_UNREAD_SHARE = 0.05
_MESSAGE_BYTES = 100
_KEEP_FINISHED_MS = 60_000
_EXPECTED_ERRORS = {ErrorCode.STALE_EPOCH, ErrorCode.STORAGE}
_EXPECTED_ENDS = {ErrorCode.STALE_EPOCH, ErrorCode.SHUTTING_DOWN}

Connect = Callable[[ClientEnd], Wire | None]


def describe(message: Message) -> str:
    """A frame in words, for a trace."""
    match message:
        case Add() | Move() | Due() | Reschedule():
            near = " near" if isinstance(message, Add | Move) and message.near else ""
            entries = [(ledger_id, entry_id, at - START_MS) for at, ledger_id, entry_id in message.entries]
            return f"{message.type.name}{near} {entries}"
        case Held():
            return f"HELD {list(message.held)} acknowledged {list(message.acknowledged)} last {message.last}"
        case Decided():
            which = [list(each) for each in (message.changed, message.too_late, message.acknowledged)]
            return f"{message.type.name} {which} {message.standing.name}"
        case Ack() | Unack() | Unheld() | Cancel():
            return f"{message.type.name} {list(message.positions)}"
        case Open():
            return (
                f"OPEN {message.subscription} epoch {message.epoch} generation {message.generation:x} "
                f"mark-delete {message.mark_delete} in flight {list(message.in_flight)} "
                f"log {message.log_pointer!r} claims {message.claims} end {message.end}"
            )
        case MarkDelete():
            return f"MARK_DELETE {message.position}"
        case Credit():
            return f"CREDIT {message.more}"
        case Error():
            return f"ERROR {message.code} {message.message}"
        case LogRequest():
            what = f"{len(message.entry)} bytes" if message.entry else f"{message.old!r} to {message.new!r}"
            return f"LOG_REQUEST {message.op.name} {message.ledger_id} {message.first}-{message.last} {what}"
        case LogAnswer():
            return f"LOG_ANSWER {message.code.name} {message.number} {message.message}"
        case _:
            return message.type.name


class Link:
    """`connect` makes a connection to the daemon, None if nobody listens; `promises` gets every word."""

    def __init__(
        self,
        kernel: Kernel,
        process: Process,
        clock: MachineClock,
        name: str,
        connect: Connect,
        promises: Callable[[], Promises],
    ) -> None:
        self._kernel = kernel
        self._process = process
        self._clock = clock
        self._name = name
        self._connect = connect
        self._promises = promises
        self._by_subscription: dict[str, Tracker] = {}
        self._trackers: dict[Tracker, None] = {}
        self._finished_ms: dict[Tracker, int] = {}
        self._failures = 0
        self.kill_at_send: int | None = None
        self.session: Session | None = None
        self._later(0, self._try_connect)

    # ---- trackers

    def register(self, tracker: Tracker) -> None:
        """A new tracker; the subscription's former one ends before it."""
        key = tracker.identity.subscription
        former = self._by_subscription.get(key)
        self._by_subscription[key] = tracker
        if former is not None and former is not tracker:
            former.finish()
            if self.session is not None and former.stream is Stream.OPEN:
                self.session.drain(former)
            if self.session is None or former.stream is not Stream.OPEN:
                tracker.adopt(former)
                self._forget(former)
        self._trackers[tracker] = None
        if self.session is not None:
            self.session.attach(tracker)

    def frames_waiting(self, tracker: Tracker) -> None:
        """The tracker has something to send."""
        if self.session is not None:
            self.session.frames_waiting(tracker)

    def forget_closed(self) -> None:
        """Forget trackers with nothing left to send, or after too long a wait."""
        now_ms = self._uptime_ms()
        for tracker in [each for each in self._trackers if each.finished]:
            since_ms = self._finished_ms.setdefault(tracker, now_ms)
            if tracker.is_over or now_ms - since_ms > _KEEP_FINISHED_MS:
                self._forget(tracker)

    def _forget(self, tracker: Tracker) -> None:
        self._trackers.pop(tracker, None)
        self._finished_ms.pop(tracker, None)
        tracker.host.log().close()
        if self._by_subscription.get(tracker.identity.subscription) is tracker:
            del self._by_subscription[tracker.identity.subscription]
        if self.session is not None:
            self.session.detach(tracker)

    def sent_a_frame(self) -> None:
        """Count it, towards a kill of the broker at the n-th one."""
        if self.kill_at_send is not None:
            self.kill_at_send -= 1
            if self.kill_at_send <= 0:
                self.kill_at_send = None
                # Not within the call: frames sent with it go out, too, and nothing after it.
                self._kernel.after(0, None, self._kernel.kill, self._process)

    # ---- the connection

    @property
    def reaches_daemon(self) -> bool:
        """True while the daemon has greeted and is connected."""
        return self.session is not None and self.session.is_greeted

    def _try_connect(self) -> None:
        if self.session is not None:
            return
        session = Session(self, self._trackers)
        wire = self._connect(session)
        if wire is None:
            self._lose()
            return
        self.session = session
        session.begin(wire)

    def greeted(self) -> None:
        """The daemon has said WELCOME."""
        self._failures = 0

    def lost(self, session: Session) -> None:
        """The connection is over: first every tracker takes back changes on their way, then one inherits."""
        if session is not self.session:
            return
        self.session = None
        self._take_back(list(self._trackers))
        self._lose()

    def _take_back(self, trackers: list[Tracker]) -> None:
        for tracker in trackers:
            tracker.on_disconnected()
        for tracker in trackers:
            current = self._by_subscription.get(tracker.identity.subscription)
            if current is not None and current is not tracker:
                current.adopt(tracker)
                self._forget(tracker)

    def has_successor(self, tracker: Tracker) -> bool:
        """True if the subscription has a newer tracker."""
        return self._by_subscription.get(tracker.identity.subscription, tracker) is not tracker

    def restart(self, subscription: str) -> None:
        """The daemon has given up a former tracker's stream: it and its successor go on as after a lost
        connection. Opened again behind its successor's it would end that.
        """
        session = self.session
        assert session is not None
        same = [each for each in self._trackers if each.identity.subscription == subscription]
        for tracker in same:
            session.abandon(tracker)
        self._take_back(same)

        def again(tracker: Tracker) -> None:
            if self.session is session and tracker in self._trackers:
                session.attach(tracker)

        for tracker in same:
            if tracker in self._trackers:
                self._later(_RESTART_MS * NS_PER_MS, again, tracker)

    def _lose(self) -> None:
        limit_ms = min(_MAX_BACKOFF_MS, _FIRST_BACKOFF_MS << min(self._failures, 10))
        self._failures += 1
        self._later(
            self._kernel.between_ns(limit_ms // 2 * NS_PER_MS, limit_ms * NS_PER_MS), self._try_connect
        )

    def _uptime_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS

    def _later(self, delay_ns: int, call: Callable[..., None], *args: object) -> Event:
        return self._kernel.after(delay_ns, self._process, call, *args)


class Session:
    """One connection. Implements `wire.ClientEnd`."""

    def __init__(self, link: Link, trackers: Iterable[Tracker]) -> None:
        self._link = link
        self._kernel = link._kernel
        self._decoder = FrameDecoder()
        self._streams: dict[int, Tracker] = {}
        self._watches: dict[int, StreamWatch] = {}
        self._ids: dict[Tracker, int] = {}
        self._unopened: dict[Tracker, None] = {}
        self._undrained: dict[Tracker, None] = {}
        self._abandoned: set[int] = set()
        self._last_stream = 0
        self._drain: Event | None = None
        self._drained_ns = 0
        self._wire: Wire | None = None
        self._welcome: Welcome | None = None
        self._over = False
        self._received_ms = self._sent_ms = link._uptime_ms()
        for tracker in trackers:
            self.attach(tracker)

    @property
    def wire(self) -> Wire | None:
        return self._wire

    @property
    def is_greeted(self) -> bool:
        return self._welcome is not None

    def begin(self, wire: Wire) -> None:
        """The connection is made: greet."""
        self._wire = wire
        self._send(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, self._link._name, "simulated broker"))
        self._tick_later()

    def attach(self, tracker: Tracker) -> None:
        """Open a stream for the tracker once the daemon has greeted."""
        self._last_stream += 1
        self._streams[self._last_stream] = tracker
        self._ids[tracker] = self._last_stream
        self._unopened[tracker] = None
        self._want_drain()

    def detach(self, tracker: Tracker) -> None:
        """The tracker is gone; frames for it are ignored."""
        stream_id = self._ids.pop(tracker, None)
        if stream_id is not None:
            del self._streams[stream_id]
            self._unopened.pop(tracker, None)
            self._undrained.pop(tracker, None)

    def abandon(self, tracker: Tracker) -> None:
        """End the tracker's stream at once, for the daemon too."""
        stream_id = self._ids.get(tracker)
        if stream_id is not None and tracker not in self._unopened:
            self._send(
                Error(ErrorCode.FAILED, "another tracker tells the rest of the former's changes"), stream_id
            )
            self._watches[stream_id].abandoned()
            self._abandoned.add(stream_id)
        self.detach(tracker)

    def frames_waiting(self, tracker: Tracker) -> None:
        """Fetch the tracker's frames soon, at most once a millisecond."""
        if tracker in self._ids:
            self._undrained[tracker] = None
            self._want_drain()

    # ---- sending

    def _want_drain(self) -> None:
        if self._drain is None and not self._over:
            wait_ns = max(0, self._drained_ns + _DRAIN_NS - self._kernel.now_ns)
            self._drain = self._link._later(wait_ns, self._drain_all)

    def _drain_all(self) -> None:
        self._drain = None
        self._drained_ns = self._kernel.now_ns
        if self._over or self._welcome is None:
            return
        for tracker in list(self._unopened):
            self._open(tracker)
        undrained, self._undrained = self._undrained, {}
        for tracker in undrained:
            if tracker in self._ids:
                self.drain(tracker)

    def _open(self, tracker: Tracker) -> None:
        stream_id = self._ids[tracker]
        request = tracker.open()
        if request is not None and self._wire is not None:
            self._unopened.pop(tracker, None)
            self._send(request, stream_id)
            self._watches[stream_id] = self._link._promises().opened(self._wire, request)
            paced = tracker.tell_pace()
            if paced is not None:
                self._send(paced, stream_id)

    def drain(self, tracker: Tracker) -> None:
        """Send the tracker's frames."""
        stream_id = self._ids[tracker]
        changes, credit = tracker.take_frames()
        for change in changes:
            self._send_change(stream_id, change)
        if credit:
            self._watches[stream_id].credit(credit)
            self._send(Credit(credit), stream_id)

    def _send_change(self, stream_id: int, change: Change) -> None:
        message = change.message()
        self._send(message, stream_id, change.seq)
        self._watches[stream_id].changed(change.seq, message)

    def _send(self, message: Message, stream_id: int = 0, seq: int = 0) -> None:
        if self._wire is not None and not self._over:
            self._sent_ms = self._link._uptime_ms()
            self._note("->", message, stream_id, seq)
            self._wire.write(encode(message, stream_id, seq))
            self._link.sent_a_frame()

    def _note(self, way: str, message: Message, stream_id: int, seq: int) -> None:
        if self._kernel.trace is not None and not isinstance(message, Ping | Pong):
            self._kernel.note(f"{self._link._name} {way} stream {stream_id} seq {seq} {describe(message)}")

    # ---- receiving

    def on_bytes(self, data: bytes) -> None:
        """See `wire.ClientEnd`."""
        if self._over:
            return
        self._received_ms = self._link._uptime_ms()
        for frame in self._decoder.feed(data):
            self._on_message(decode(frame), frame.stream, frame.seq)
            if self._over:
                return

    def _on_message(self, message: Message, stream_id: int, seq: int) -> None:
        self._note("<-", message, stream_id, seq)
        if stream_id == 0:
            self._on_connection_message(message, seq)
            return
        if stream_id in self._abandoned:
            return  # under way when the stream was ended here
        tracker = self._streams.get(stream_id)
        watch = self._watches.get(stream_id)
        if watch is None:
            raise Violation(
                f"the daemon sends {message.type.name} on stream {stream_id}, which was not opened"
            )
        if isinstance(message, LogRequest):
            self._on_log_request(tracker, watch, message, stream_id, seq)
            return
        if isinstance(message, Pace):
            if tracker is not None:
                tracker.on_pace(message, lambda answer: self._send(answer, stream_id, seq))
            return
        if isinstance(message, Peek):
            if tracker is not None:
                self._send(self._peeked(tracker, message), stream_id, seq)
            return
        if isinstance(message, Cancel | Reschedule):
            self._on_wish(tracker, watch, message, stream_id, seq)
            return
        watch.received(message, seq)
        if isinstance(message, Error) and ErrorCode(message.code) not in _EXPECTED_ERRORS:
            raise Violation(f"the daemon refuses a stream: {message.message} (code {message.code})")
        if tracker is None:
            return  # closed here; its frames were under way
        if not isinstance(message, Due | Durable):
            tracker.host.unsettle()
        match message:
            case Held():
                tracker.on_held(message)
            case Due():
                tracker.on_due(message)
            case Durable():
                tracker.on_durable(seq)
            case Unheld():
                tracker.on_unheld(message)
            case Error():
                tracker.on_stream_error(stale=message.code == ErrorCode.STALE_EPOCH)
                if self._link.has_successor(tracker):
                    self._link.restart(tracker.identity.subscription)
                else:
                    self._reopen(tracker)
            case Close():
                tracker.on_closed()
                self._reopen(tracker)
            case _:
                raise Violation(f"the daemon does not send {message.type.name} on a stream")

    def _on_wish(
        self,
        tracker: Tracker | None,
        watch: StreamWatch,
        asked: Cancel | Reschedule,
        stream_id: int,
        seq: int,
    ) -> None:
        if tracker is None:
            return

        def answer(said: Cancelled | Rescheduled) -> None:
            if said.standing is Standing.SETTLED and not asked.ask and not watch.over:
                told = said.changed.snapshot()
                if isinstance(said, Cancelled):
                    # Perhaps of an earlier answer: the daemon asks the next owner again, which sends no ACK.
                    told.update(said.acknowledged)
                watch.decided(told, moves=isinstance(said, Rescheduled))
            self._send(said, stream_id, seq)  # dropped on an ended stream

        if isinstance(asked, Cancel):
            tracker.on_cancel(asked, answer)
        else:
            watch.asked_to_move(asked.entries)
            tracker.on_reschedule(asked, answer)

    def _peeked(self, tracker: Tracker, asked: Peek) -> Peeked:
        """Look into the messages; some of them cannot be read now."""
        there = [each for each in asked.positions if tracker.host.exists(each)]
        luck = self._kernel.numbers
        unread = {each for each in there if luck.random() < _UNREAD_SHARE}
        matching = {each for each in there if key_of(each) == asked.sought.value} - unread
        return Peeked(PositionSet.of(matching), PositionSet.of(unread), _MESSAGE_BYTES * len(there))

    def _on_log_request(
        self, tracker: Tracker | None, watch: StreamWatch, request: LogRequest, stream_id: int, seq: int
    ) -> None:
        if watch.over:
            raise Violation(f"{request.op.name} on a stream that has ended")
        if tracker is not None:
            tracker.host.log().ask(request, lambda answer: self._send(answer, stream_id, seq))

    def _on_connection_message(self, message: Message, seq: int) -> None:
        match message:
            case Error():
                if ErrorCode(message.code) not in _EXPECTED_ENDS:
                    raise Violation(
                        f"the daemon ends the connection: {message.message} (code {message.code})"
                    )
                self._close()
            case Welcome():
                self._welcome = message
                self._link.greeted()
                self._want_drain()
            case Ping():
                self._send(Pong(), 0, seq)
            case Pong():
                pass
            case _:
                raise Violation(f"the daemon does not send {message.type.name} on stream 0")

    def _reopen(self, tracker: Tracker) -> None:
        if tracker in self._ids:
            self._unopened[tracker] = None
            self._want_drain()

    # ---- the end

    def on_lost(self) -> None:
        """See `wire.ClientEnd`."""
        if not self._over:
            self._over = True
            self._link.lost(self)

    def _close(self) -> None:
        if self._wire is not None and not self._over:
            self._over = True
            self._wire.close_client()
            self._link.lost(self)

    # ---- heartbeat

    def _tick_later(self) -> None:
        if self._welcome is None or self._unopened:
            delay_ms = _TICK_MS
        else:
            delay_ms = max(_TICK_MS, self._welcome.heartbeat_ms // 4)
        self._link._later(delay_ms * NS_PER_MS, self._tick)

    def _tick(self) -> None:
        if self._over:
            return
        now_ms = self._link._uptime_ms()
        limit_ms = _GREETING_MS if self._welcome is None else 3 * self._welcome.heartbeat_ms
        if now_ms - self._received_ms > limit_ms:
            self._close()
            return
        if self._welcome is not None and now_ms - self._sent_ms >= self._welcome.heartbeat_ms // 2:
            self._send(Ping())
        if self._unopened:
            self._want_drain()
        self._tick_later()
