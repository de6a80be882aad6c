"""Bugs to plant in the models of the broker and of the shim. See `plants`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from tests.sim import broker
from tests.sim.belief import Belief
from tests.sim.broker import ServedSubscription
from tests.sim.cursor_properties import CursorProperties
from tests.sim.kernel import NS_PER_S
from tests.sim.overrides import OverrideLog, Stored
from tests.sim.planted_daemon import claims_not_compared
from tests.sim.replaced import replaced
from tests.sim.seal import NO_SEAL, Claim, Seal
from tests.sim.shim import Stream as ShimStream
from tests.sim.shim import Tracker as ShimTracker
from tests.sim.stored_deletions import Kept
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.wire.messages import Pace, Paced, Unheld
from tidegate.plugin.wire.release_pace import PaceKind


@contextmanager
def refused_and_left() -> Iterator[None]:
    """5df189f: a reset that met a write of a property was refused, and its position stored later."""
    with replaced(CursorProperties, "is_being_reset", False):
        yield


@contextmanager
def left_as_loaded() -> Iterator[None]:
    """d57358d: the next owner believed acknowledgements still in a reset's own record."""
    with replaced(ServedSubscription, "_is_undone", False):
        yield


@contextmanager
def sealed_before_the_look() -> Iterator[None]:
    """A tracker made before the report of the topic's loading put a seal, which vouched for acknowledgements
    taken back by a reset.
    """
    original = ServedSubscription._make_tracker

    def make(self: Any) -> Any:
        self._look, look = lambda: None, self._look
        try:
            return original(self)
        finally:
            self._look = look

    # The reporting thread is late, so that most trackers are made before.
    late_ns = 2 * NS_PER_S
    with replaced(ServedSubscription, "_make_tracker", make), replaced(broker, "_LOOK_NS", late_ns):
        yield


@contextmanager
def sealed_amid_a_reset() -> Iterator[None]:
    """The simulator's own find: a seal put during a reset is stored with it, and acknowledgements seen before
    the reset has cleared them are believed.
    """
    with replaced(ServedSubscription, "may_seal", lambda self: True):
        yield


@contextmanager
def lost_seal_is_a_resets() -> Iterator[None]:
    """A seal taken by a move forward was not stored again, so that the cursor looked reset to the
    next owner.
    """
    with replaced(ServedSubscription, "_store_seal", lambda self: None):
        yield


@contextmanager
def repeated_reset_left() -> Iterator[None]:
    """A reset repeated by the shim was left as in its own record, with the acknowledgements taken back, until
    another write. The next owner repeated it once more.
    """
    original = ServedSubscription._reset_is_done

    def is_done(self: Any) -> None:
        original(self)
        self._beyond = False

    with replaced(ServedSubscription, "_reset_is_done", is_done):
        yield


@contextmanager
def moves_taken_for_resets() -> Iterator[None]:
    """The simulator's own find: after a skip the shim disbelieved the daemon, which then forgot
    acknowledgements.
    """

    def replace_(self: Any) -> bool:
        self.renew()
        return False

    with replaced(Seal, "replace", replace_):
        yield


@contextmanager
def resets_taken_for_moves() -> Iterator[None]:
    """A reset counts as a move forward, whoever has come and gone."""

    def replace_(self: Any) -> bool:
        told, unheard = self.told, self._unheard
        self.renew()
        self.told, self._unheard = told, unheard
        return cast(int, self.generation) != NO_SEAL

    with replaced(Seal, "replace", replace_):
        yield


@contextmanager
def former_seal_not_told() -> Iterator[None]:
    """OPEN has the present seal, before the daemon's answer under the former."""

    def tell(self: Any) -> int:
        self.told = self.generation
        return cast(int, self.told)

    with replaced(Seal, "tell", tell):
        yield


@contextmanager
def told_once() -> Iterator[None]:
    """1517fa4: positions let go of by the daemon were not sent again while their DURABLE was on its way."""

    def on_unheld(self: Any, unheld: Unheld) -> None:
        with replaced(self.outbox, "add", lambda position, deliver_at_ms, *, near: None):
            original(self, unheld)

    original = ShimTracker.on_unheld
    with replaced(ShimTracker, "on_unheld", on_unheld):
        yield


@contextmanager
def epoch_of_the_clock() -> Iterator[None]:
    """The epoch was the wall clock of the tracker's maker."""

    def make(self: Any, claimed: Callable[[], None]) -> None:
        if not self.owned:
            self.owner = replace(self._host.owner() or self._known, epoch=self._host.now_ms())
            self._host.put_owner(self.owner, lambda done: None)
            self.owned = True
            claimed()

    with replaced(Claim, "make", make):
        yield


@contextmanager
def credit_after_close() -> Iterator[None]:
    """f029f7f: a finished tracker gave credit back after its CLOSE."""

    def take_frames(self: Any) -> Any:
        changes, credit = original(self)
        if self.finished and self.stream is ShimStream.OPEN and not credit:
            credit, self._credit_back = max(1, self._credit_back), 0
        return changes, credit

    original = ShimTracker.take_frames
    with replaced(ShimTracker, "take_frames", take_frames):
        yield


@contextmanager
def given_back_in_eighths() -> Iterator[None]:
    """3404f5f: credit was returned in eighths of OPEN's; a daemon may keep less than one."""

    def is_credit_due(self: Any) -> bool:
        return bool(self._credit_back >= max(1, self.options.credit // 8))

    with replaced(ShimTracker, "_is_credit_due", property(is_credit_due)):
        yield


@contextmanager
def clock_ahead() -> Iterator[None]:
    """The shim gates by a clock that is ahead of the broker's (a fault of the model, not of the product)."""
    with replaced(ServedSubscription, "now_ms", lambda self: self.broker.clock.now_ms() + 5):
        yield


@contextmanager
def never_full() -> Iterator[None]:
    """The shim reads on, however much lacks DURABLE."""
    with replaced(ShimTracker, "_is_full", lambda self: False):
        yield


@contextmanager
def pause_not_stored() -> Iterator[None]:
    """A pause is in force and answered, but not in the cursor's properties."""

    def on_pace(self: Any, asked: Pace, answer: Callable[[Paced], None]) -> None:
        if not asked.ask and asked.pace.kind == PaceKind.PAUSED:
            self.is_paused = True
            answer(Paced(asked.pace))
        else:
            original(self, asked, answer)

    original = ShimTracker.on_pace
    with replaced(ShimTracker, "on_pace", on_pace):
        yield


@contextmanager
def read_leaves_while_paused() -> Iterator[None]:
    """The near tier waits, and messages read when they are due leave."""

    def add_found(self: Any, position: Any, deliver_at_ms: int) -> bool:
        paused, self.is_paused = self.is_paused, False
        try:
            return original(self, position, deliver_at_ms)
        finally:
            self.is_paused = paused

    original = ShimTracker._add_found
    with replaced(ShimTracker, "_add_found", add_found):
        yield


@contextmanager
def overrides_forgotten() -> Iterator[None]:
    """A new owner opens the ledger of overrides and reads nothing of it."""

    def on_read(self: Any, entries: Any) -> None:
        original(self, [] if entries else entries)

    original = OverrideLog._on_read
    with replaced(OverrideLog, "_on_read", on_read):
        yield


@contextmanager
def answered_before_it_is_stored() -> Iterator[None]:
    """A move is answered as done when it is decided."""

    def store(self: Any, records: Any, done: Callable[[Stored], None]) -> None:
        original(self, records, lambda stored: None)
        done(Stored.YES)

    original = OverrideLog.store
    with replaced(OverrideLog, "store", store):
        yield


@contextmanager
def daemon_alone_is_told() -> Iterator[None]:
    """A move is stored in the daemon's index only."""

    def store(self: Any, records: Any, done: Callable[[Stored], None]) -> None:
        self._on_stored(records)
        done(Stored.YES)

    with replaced(OverrideLog, "store", store):
        yield


@contextmanager
def cancelled_and_held() -> Iterator[None]:
    """The index still holds cancelled messages: no ACK comes, and the daemon ignores the answer."""

    def cancel(self: Any, positions: Any) -> None:
        with replaced(self.outbox, "acknowledge", lambda positions: None):
            original(self, positions)

    original = ShimTracker._cancel
    with (
        replaced(ShimTracker, "_cancel", cancel),
        replaced(DaemonEngine, "acknowledge_cancelled", lambda self, stream, positions: 0),
    ):
        yield


@contextmanager
def cancelled_before_it_is_stored() -> Iterator[None]:
    """A cancellation is answered as done before the cursor's record has it."""

    def delete_and_store(self: Any, positions: Any, seal: int, done: Callable[[Kept], None]) -> None:
        done(Kept.YES)

    with replaced(ServedSubscription, "delete_and_store", delete_and_store):
        yield


@contextmanager
def cancelled_too_late() -> Iterator[None]:
    """A message that a consumer has counts as waiting."""

    def sort(self: Any, asked: Any) -> Any:
        found = original(self, asked)
        found.waiting |= found.too_late
        found.too_late = set()
        return found

    original = ShimTracker._sort
    with replaced(ShimTracker, "_sort", sort):
        yield


@contextmanager
def former_time_holds() -> Iterator[None]:
    """A moved message leaves at its own time when read."""
    with replaced(ShimTracker, "_time_of", lambda self, position, own_ms: own_ms):
        yield


@contextmanager
def lost_half_the_time(name: str) -> Iterator[None]:
    """Half of the calls of a broker's method are lost."""

    def call(self: Any) -> None:
        if self.broker.kernel.numbers.random() < 0.5:
            original(self)

    original = getattr(ServedSubscription, name)
    with replaced(ServedSubscription, name, call):
        yield


@contextmanager
def loss_of_former_history() -> Iterator[None]:
    """The listener ignores claims, too: effects on messages are detected."""
    with claims_not_compared(), replaced(Belief, "_empty_if_of_another_history", lambda self, request: None):
        yield


@contextmanager
def first_owners_wait_for_any_daemon() -> Iterator[None]:
    """dd74860a: the first owner of a subscription waited for an absent daemon as any other one does."""
    with replaced(Claim, "is_first", False):
        yield


@contextmanager
def every_owner_is_the_first() -> Iterator[None]:
    """Each owner decides without a daemon that may know acknowledgements."""
    with replaced(Claim, "is_first", property(lambda self: self.owned)):
        yield


@contextmanager
def rules_not_awaited() -> Iterator[None]:
    """dd74860a: first messages left by their own times, before their namespace's rules were known."""
    with replaced(ShimTracker, "is_ruled", True):
        yield
