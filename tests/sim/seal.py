"""A model of the shim's `Seal` and `Claim`: the cursor's own record of resets, and of its owner.

The seal is a random number among the properties that the cursor persists with its mark-delete position; a
reset removes it in the step that clears the acknowledgements. Moves of mark-delete remove it, too, and clear
nothing: a consumer that stays connected tells them from a reset, which disconnects all consumers first. The
claim is the next epoch and a number, written into the cursor's metadata by compare-and-set before the daemon
gets it; the last owners' numbers stay there. Why: docs/decisions/.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidegate.plugin.wire.payload_reader import CLAIMS_MAX

Position = tuple[int, int]

NO_SEAL = 0
NOWHERE: Position = (-1, -1)

_FIRST_PAUSE_MS = 100
_MAX_PAUSE_MS = 10_000
_MAX_CONFLICTS = 4


@dataclass(frozen=True, slots=True)
class Owner:
    """The life of the subscription, and the number of its trackers. `claims`: the last ones' numbers, that of
    `epoch` last. `sealed`: acknowledgements are stored with a seal, those without are a reset's.
    """

    incarnation: bytes
    epoch: int
    claims: tuple[int, ...] = ()
    sealed: bool = False

    def text(self) -> str:
        """As in the cursor's properties."""
        sealed = "+" if self.sealed else ""
        return f"{self.incarnation.hex()}:{sealed}{self.epoch}:{','.join(map(str, self.claims))}"

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Parse `text`'s result."""
        incarnation, epoch, claims = text.split(":")
        numbers = tuple(int(each) for each in claims.split(",") if each)
        return cls(bytes.fromhex(incarnation), int(epoch), numbers, epoch.startswith("+"))


class SealHost(Protocol):
    """The cursor, for the seal."""

    def seal(self) -> int: ...
    def put_seal(self, seal: int) -> bool: ...
    def may_seal(self) -> bool: ...
    def consumers(self) -> Sequence[object]: ...
    def random(self) -> random.Random: ...


class Seal:
    """A tracker's number. Acknowledgements seen under it count while the cursor still has it.

    `told`: that of the last OPEN, if acknowledgements under it are as true as those under `generation`.
    """

    def __init__(self, host: SealHost) -> None:
        self._host = host
        self._doubted = NO_SEAL
        self._witnesses: Sequence[object] = ()
        self.generation = host.seal()
        if self.generation == NO_SEAL:
            self.renew()
        self.told = NO_SEAL
        self._unheard = self.generation  # under which the daemon has not answered yet
        self.watch()

    def watch(self) -> None:
        """Note the consumers connected while the cursor has the seal."""
        connected = self._host.consumers()
        if self.generation != NO_SEAL and self._host.seal() == self.generation:
            self._witnesses = connected

    def tell(self) -> int:
        """The number for OPEN: the former one, until the daemon has answered under it."""
        self.told = self._unheard or self.generation
        return self.told

    def heard(self) -> None:
        """The daemon has answered OPEN."""
        self._unheard = NO_SEAL

    def adopt(self, former: Seal) -> None:
        """Another tracker of the same broker follows before the daemon's answer."""
        if former.generation == self.generation and former._unheard and self._unheard:
            self._unheard = former._unheard

    @property
    def is_intact(self) -> bool:
        """True if the cursor still has it."""
        there = self._host.seal()
        return there == self.generation or (self.generation == NO_SEAL and there == self._doubted)

    def stood(self, then: int) -> bool:
        """True if a look at the cursor, since the generation was `then`, still holds."""
        return then == self.generation and self.is_intact

    @property
    def is_wanted(self) -> bool:
        """True if there is none, and there can be one now."""
        return self.generation == NO_SEAL and self._host.may_seal()

    def replace(self) -> bool:
        """The seal is gone: take or put another. True if knowledge under the former still holds: a consumer
        of then is connected, and no reset can have begun.
        """
        former, witnesses, told, unheard = self.generation, self._witnesses, self.told, self._unheard
        self.renew()
        connected = self._host.consumers()
        stayed = any(each is other for each in witnesses for other in connected)
        if NO_SEAL in (former, self.generation) or not stayed:
            return False
        self._witnesses, self.told, self._unheard = witnesses, told, unheard
        return True

    def renew(self) -> None:
        """Take the one stored since (`broker`), or put another; knowledge under the former is doubtful from
        now on.

        None is put without consumers: a reset under way has taken the seal and not yet the acknowledgements,
        and would be stored with a new one.
        """
        if self.generation != NO_SEAL:
            self._doubted = self.generation
        self.generation = self.told = self._unheard = NO_SEAL
        self._witnesses = ()
        there = self._host.seal()
        if there not in (NO_SEAL, self._doubted):
            self.generation = there
        elif self._host.may_seal():
            number = self._host.random().randrange(1, 1 << 63)
            if self._host.put_seal(number):
                self.generation = number


class ClaimHost(Protocol):
    """The cursor's metadata, for the claim."""

    def uptime_ms(self) -> int: ...
    def draw_claim(self) -> int: ...
    def stores_sealed(self) -> bool: ...
    def last_position(self) -> Position: ...
    def owner(self) -> Owner | None: ...
    def put_owner(self, owner: Owner, done: Callable[[bool], None]) -> None: ...
    def reopen_topic(self) -> None: ...


class Claim:
    """`known`: the cursor's owner when the tracker was made, or a first one. `end`: the topic's end when the
    epoch was claimed.
    """

    def __init__(self, host: ClaimHost, known: Owner, claims_max: int = CLAIMS_MAX) -> None:
        self._host = host
        self._known = known
        self._claims_max = claims_max
        self.owner = known
        self.end = NOWHERE
        self.owned = False
        self._writing = False
        self._refusals = 0
        self._again_ms = 0

    @property
    def is_first(self) -> bool:
        """True if this is the subscription's first owner: nobody has told a daemon of it before."""
        return self.owned and self.owner.epoch == 1

    def follows(self, former: Claim) -> bool:
        """True if the subscription had no owner between that claim and this one."""
        known, then = self._known, former.owner
        return former.owned and (known.epoch, known.claims) == (then.epoch, then.claims)

    def lost(self) -> None:
        """A greater epoch was claimed: claim anew, which succeeds only for the owner."""
        self.owned = False

    def make(self, claimed: Callable[[], None]) -> None:
        """Write the next epoch, if due; then call `claimed`."""
        if self.owned or self._writing or self._host.uptime_ms() < self._again_ms:
            return

        def answered(done: bool) -> None:
            self._writing = False
            self.owned = done
            if done:
                self._refusals = 0
                claimed()
            else:
                pause_ms = min(_MAX_PAUSE_MS, _FIRST_PAUSE_MS << min(self._refusals, 10))
                self._refusals += 1
                self._again_ms = self._host.uptime_ms() + pause_ms
                if self._refusals >= _MAX_CONFLICTS:
                    self._host.reopen_topic()

        self._writing = True
        there = self._host.owner() or self._known
        claims = (*there.claims, self._host.draw_claim())[-self._claims_max :]
        self.owner = replace(
            there,
            epoch=there.epoch + 1,
            claims=claims,
            sealed=there.sealed or self._host.stores_sealed(),
        )
        self.end = self._host.last_position()
        self._host.put_owner(self.owner, answered)
