"""A broker's session with one subscription: turns frames into calls of the index and into messages.

No I/O, no clock. A session answers for one subscription on one connection, from OPEN to CLOSE. Invariants:

- ADD, MOVE, ACK, UNACK, MARK_DELETE, CLEAR and CLOSE are applied in the order 1, 2, 3 …, each exactly once;
- a seq is reported durable only when the index says that its change's token, and so every change before it,
  is on disk;
- an ACK or MARK_DELETE counts only while the index has the generation of the stream's OPEN: else a newer
  stream has reported a reset of the cursor since;
- nothing is handed out before the last HELD frame was taken, nor without credit, nor after CLOSE or
  ``supersede``;
- entries reported by the broker as in flight, or as near, are not handed out on this stream, whoever brings
  them to the index;
- nothing counts of a topic since put back to an earlier state, for instance from a backup: see ``histories``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tidegate.index import DelayIndex, Entries, PositionSet, SubscriptionName
from tidegate.plugin.daemon.histories import claim_of, find_break
from tidegate.plugin.errors import ErrorCode, ProtocolError, StreamError
from tidegate.plugin.wire.messages import Ack, Add, Clear, Close, Held, MarkDelete, Move, Open, Unack
from tidegate.plugin.wire.position_pieces import split_positions

Change = Add | Move | Ack | Unack | MarkDelete | Clear | Close


@dataclass(frozen=True, slots=True)
class Durability:
    """A commit's effect: frames up to ``seq`` are durable; the oldest came at ``received_ns``."""

    seq: int
    received_ns: int


class Session:
    """The stream ``stream_id`` of a connection, which serves ``index``.

    ``credit``: entries that may still be handed out; ``credit_max`` bounds it. ``cleared``: everything was
    cleared, and nothing added since. ``next_seq``: the number of the next change. ``answer_begun``: the
    contents of the answer to OPEN are fixed; ``answer_made``: its last HELD was taken. ``found_break``: the
    sign that the index was of another history than the cursor, and was therefore emptied.
    """

    def __init__(self, stream_id: int, index: DelayIndex, request: Open, credit_max: int) -> None:
        self.stream_id = stream_id
        self.index = index
        self.name = SubscriptionName(request.topic, request.subscription)
        self.epoch = request.epoch
        self.generation = request.generation
        self.horizon_ms = request.horizon_ms
        self.credit = min(request.credit, credit_max)
        self.answer_begun = False
        self.answer_made = False
        self.closing = False
        self.superseded = False
        self.cleared = False
        self._credit_max = credit_max
        self.next_seq = 1
        self.found_break = find_break(index.state, request)
        if self.found_break is not None:
            index.clear()
        # The claim follows the clearing: after a crash between them, the next OPEN finds the break again.
        claim = claim_of(request)
        if claim is not None:
            index.begin_claim(claim)
        self._token = max(index.begin_generation(request.generation), index.mark_delete(*request.mark_delete))
        self._pending: deque[tuple[int, int, int]] = deque()  # seq, token, received_ns
        index.rewind(request.in_flight)
        # The broker has these, but the index lost them before they were durable: they come once more in an
        # ADD. Better handed out twice than never: any other change of such a position makes it an ordinary
        # one.
        self._in_flight_unheld = request.in_flight.difference(index.state.held_among(request.in_flight))
        index.take_unheld()  # the answer to OPEN lacks earlier losses: they need no UNHELD

    def __repr__(self) -> str:
        return f"Session({self.name.topic!r}, {self.name.subscription!r}, stream {self.stream_id})"

    @property
    def undurable_frames(self) -> int:
        """Applied changes not yet in a commit."""
        return len(self._pending)

    def held_frames(self) -> Iterator[Held]:
        """The answer to OPEN, at least one frame: the positions held when the first one is taken.

        Each frame is made when taken, in some milliseconds at most. After the last one entries may be handed
        out.
        """
        nothing = PositionSet()
        held, acknowledged = self.index.state.held.snapshot(), self.index.state.acknowledged.snapshot()
        self.answer_begun = True
        parts = zip_longest(split_positions(held), split_positions(acknowledged), fillvalue=nothing)
        here = next(parts, (nothing, nothing))
        for following in parts:
            yield Held(*here, last=False)
            here = following
        yield Held(*here, last=True)
        self.answer_made = True

    def apply_frame(self, seq: int, change: Change, received_ns: int, *, first_seq: int | None = None) -> int:
        """Make one change; returns its weight in journal entries (for the size of a commit group).

        first_seq: the frames from there to ``seq`` are one change. Raises ``ProtocolError`` (out of order) if
        it is not the next one, ``StreamError`` (unknown stream) after CLOSE, and the index's errors.
        """
        if self.closing:
            raise StreamError(ErrorCode.UNKNOWN_STREAM, "the stream is closed")
        first_seq = seq if first_seq is None else first_seq
        if first_seq != self.next_seq:
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER,
                f"stream {self.stream_id}: {change.type.name} with seq {first_seq}, expected {self.next_seq}",
            )
        weight = self._change(change)
        self.next_seq = seq + 1
        self._pending.append((seq, self._token, received_ns))
        return weight

    def _change(self, change: Change) -> int:
        index = self.index
        weight = 1
        match change:
            case Ack() | MarkDelete() if self.generation != index.state.generation:
                token = self._token
            case Add():
                token = index.add(change.entries)
                self.cleared = False
                self._keep_with_broker(change)
                weight = len(change.entries)
            case Move():
                token = index.move(change.entries)
                self.cleared = False
                self._keep_moved(change)
                weight = len(change.entries)
            case Ack():
                token = index.acknowledge(change.positions)
                self._in_flight_unheld.difference_update(change.positions)
                weight = len(change.positions)
            case Unack():
                token = index.unacknowledge(change.positions)
                self._in_flight_unheld.difference_update(change.positions)
                weight = len(change.positions)
            case MarkDelete() if self.superseded and change.position < index.state.mark:
                token = self._token  # its successor has reported a later position of the cursor
            case MarkDelete():
                token = index.mark_delete(*change.position)
                self._in_flight_unheld.discard_up_to(*change.position)
            case Clear() if self.superseded:
                # Its successor skips positions that it believes held. Too many held cost a look at the
                # cursor.
                token = index.unacknowledge(index.state.acknowledged.snapshot())
            case Clear():
                token = index.clear()
                self._in_flight_unheld.clear()
                self.cleared = True
            case Close():
                token = self._token
                self.closing = True
        self._token = max(self._token, token)
        return weight

    def acknowledge(self, positions: PositionSet) -> int | None:
        """Note positions cancelled by the broker, as an ACK repeats; returns a token as of the index.

        None if the index has another generation: there it counts as little as the ACK.
        """
        if self.generation != self.index.state.generation:
            return None
        self._in_flight_unheld.difference_update(positions)
        return self.index.acknowledge(positions)

    def move(self, entries: Entries) -> int:
        """Note entries moved by the broker, as a MOVE repeats; returns a token as of the index."""
        fresh = entries.take(~self.index.state.moved.holds(entries))
        self._in_flight_unheld.difference_update(PositionSet.of_entries(fresh))
        return self.index.move(fresh)

    def _keep_moved(self, change: Move) -> None:
        """Hand out again all moved positions, also in flight, except those near at the broker at their new
        times.
        """
        positions = PositionSet.of_entries(change.entries)
        self._in_flight_unheld.difference_update(positions)
        if change.near and not self.superseded:
            self.index.state.mark_in_flight(positions)

    def _keep_with_broker(self, change: Add) -> None:
        """Do not hand out entries in the broker's near tier, or already handed out by it.

        The near tier of a superseded stream is gone.
        """
        if self.superseded:
            return
        entries = change.entries
        if not change.near:
            if not self._in_flight_unheld:
                return
            entries = entries.take(self._in_flight_unheld.contains(entries))
        positions = PositionSet.of_entries(entries)
        self._in_flight_unheld.difference_update(positions)
        self.index.state.mark_in_flight(positions)

    def brought(self, positions: PositionSet) -> None:
        """Note positions brought to the index by another source, a rebuild or a former stream.

        Those in flight at the broker stay there.
        """
        in_flight = self._in_flight_unheld.intersection(positions)
        if in_flight:
            self._in_flight_unheld.difference_update(in_flight)
            self.index.state.mark_in_flight(in_flight)

    def durable(self, durable_token: int) -> Durability | None:
        """The newest seq covered by ``durable_token``, once; None if it was reported before."""
        news: Durability | None = None
        while self._pending and self._pending[0][1] <= durable_token:
            seq, _, received_ns = self._pending.popleft()
            news = Durability(seq, received_ns if news is None else news.received_ns)
        return news

    def add_credit(self, more: int) -> None:
        """The broker has room for so many more entries."""
        self.credit = min(self.credit + more, self._credit_max)

    def supersede(self) -> None:
        """Note that a newer stream of the same connection serves the subscription.

        Acknowledgements and entries of the old topic's last moments still count, but this stream hands out
        nothing, has nothing at its broker any more, and clears nothing.
        """
        self.superseded = True

    def follow(self, index: DelayIndex | None) -> None:
        """Send changes from here to ``index``, the subscription's present one, if it is of the same life.

        For a broker's former stream, after its newer stream got the index from its log.
        """
        if index is not None and index is not self.index and index.incarnation == self.index.incarnation:
            self.index = index

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Entries to hand out now, in order: at most ``limit``, at most the credit. Raises the index's
        errors.
        """
        if not self.hands_out:
            return Entries.empty()
        entries = self.index.timeline.pop_due(now_ms + self.horizon_ms, min(limit, self.credit))
        self.credit -= len(entries)
        return entries

    def wake_at_ms(self) -> int | None:
        """The time at which ``pop_due`` may return entries (or turn out empty); None: not before a change."""
        if not self.hands_out:
            return None
        next_due_ms = self.index.timeline.next_due_ms()
        return None if next_due_ms is None else next_due_ms - self.horizon_ms

    @property
    def hands_out(self) -> bool:
        """True if entries can be handed out on this stream now."""
        return self.answer_made and self.credit > 0 and not self.closing and not self.superseded
