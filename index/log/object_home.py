"""A home of index logs in a store of objects: an entry is an object, and its name ends with its number.

Invariants (docs/decisions/index-log-in-objects.md):

- objects never change. A ledger's opener makes the object after its last entry, the fence; the former writer
  needs every number in turn, and finds that one taken;
- an append returns only when all earlier ones have succeeded: the entries that count have no gap;
- a ledger's head, `ABOUT`, is its first object to come and to go. A reader without an entry or a fence looks
  for it: no head means deleted, a head means damaged or at its end;
- a ledger's id contains the owner's epoch and a random number: where the store cannot refuse a second object
  of one name, a former owner writes beside the new ledger, not into it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import (
    ENTRY_BYTES_MAX,
    READ_BYTES,
    AwayError,
    FencedError,
    HomeError,
    NoLedgerError,
    RefusedError,
)
from tidegate.index.log.objects import Objects
from tidegate.index.names import SubscriptionName

ABOUT = "about"
FENCE = b"fenced"
ANSWER_SECONDS = 10.0
READ_ENTRIES_MAX = 64
_EPOCH_BITS, _RANDOM_BITS = 31, 32
_NUMBER = re.compile(r"[0-9]{10}", re.ASCII)

ResultT = TypeVar("ResultT")

Point = Callable[[str, str], Awaitable[None]]


class About(NamedTuple):
    """A ledger's owner, in an object beside its entries."""

    identity: Identity
    epoch: int

    def encode(self) -> bytes:
        """As JSON."""
        topic, subscription = self.identity.name
        told = {
            "application": "tidegate",
            "topic": topic,
            "subscription": subscription,
            "incarnation": self.identity.incarnation.hex(),
            "epoch": self.epoch,
        }
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> About | None:
        """The inverse of `encode`; None for anything else."""
        try:
            told = json.loads(data)
            if told["application"] != "tidegate":
                return None
            name = SubscriptionName(str(told["topic"]), str(told["subscription"]))
            return cls(Identity(name, bytes.fromhex(told["incarnation"])), int(told["epoch"]))
        except (ValueError, KeyError, TypeError):
            return None


def folder_of(identity: Identity) -> str:
    """One incarnation's folder, without the odd characters that names may have."""
    whole = b"\0".join((*(part.encode() for part in identity.name), identity.incarnation))
    return hashlib.sha256(whole).hexdigest()[:32]


@dataclass
class _Written:
    """A ledger written here. last: done when the last append has ended."""

    count: int = 0
    last: asyncio.Future[None] | None = None
    failure: HomeError | None = None


class ObjectHome:
    """`Home` of one subscription on behalf of one owner.

    objects: returns the store; it may block, and may raise OSError. kind: the store's name in a pointer.
    interval_ms, tail_entries_max: see `Home`. offload: runs blocking work. point: changes the pointer.
    """

    def __init__(
        self,
        objects: Callable[[], Objects],
        about: About,
        *,
        kind: str,
        interval_ms: int,
        tail_entries_max: int,
        random: Callable[[], int],
        offload: Callable[[Callable[[], object]], Awaitable[object]],
        point: Point,
    ) -> None:
        self.kind = kind
        self.fences = True
        self.interval_ms = interval_ms
        self.tail_entries_max = tail_entries_max
        self._objects = objects
        self._about = about
        self._random = random
        self._offload = offload
        self._point = point
        self._written: dict[int, _Written] = {}
        self._opened: dict[int, dict[int, int]] = {}
        self._over = False
        self._under_way: set[asyncio.Future[object]] = set()

    async def create(self) -> int:
        """See `Home`."""
        epoch = self._about.epoch & ((1 << _EPOCH_BITS) - 1)
        ledger_id = epoch << _RANDOM_BITS | self._random() & ((1 << _RANDOM_BITS) - 1)
        await self._make(f"{self._folder(ledger_id)}/{ABOUT}", self._about.encode())
        self._written[ledger_id] = _Written()
        return ledger_id

    async def append(self, ledger_id: int, entry: bytes) -> int:
        """See `Home`."""
        written = self._written.get(ledger_id)
        if written is None:
            raise NoLedgerError(f"ledger {ledger_id} is not written here")
        if len(entry) > ENTRY_BYTES_MAX:
            raise RefusedError(f"an entry of {len(entry)} bytes is too long")
        number, written.count = written.count, written.count + 1
        before = written.last
        ended = written.last = asyncio.get_running_loop().create_future()
        try:
            _require(written)
            await self._make(self._entry(ledger_id, number), entry)
            if before is not None:
                await asyncio.shield(before)  # cancelling this append must not cancel that one
            _require(written)
        except BaseException as error:
            if written.failure is None:
                written.failure = error if isinstance(error, HomeError) else AwayError("it was given up")
            raise
        finally:
            ended.set_result(None)
        return number

    async def open(self, ledger_id: int) -> int:
        """See `Home`."""
        found = await self._do(lambda store: store.sizes(self._folder(ledger_id)))
        if ABOUT not in found:  # a deletion is under way, or a reader left its fence
            raise NoLedgerError(f"there is no ledger {ledger_id}")
        sizes = {int(name): size for name, size in found.items() if _NUMBER.fullmatch(name)}
        end = 0
        while end in sizes and not await self._is_fence(ledger_id, end, sizes[end]):
            end += 1
        if end not in sizes:
            self.fences = await self._do(lambda store: store.creates_once)
            fence = self._fence(ledger_id, end, sizes) if self.fences else _end(end)
            # The head was there after the listing: no deletion had begun.
            end, _ = await asyncio.gather(fence, self._require_head(ledger_id))
        self._written.pop(ledger_id, None)
        self._opened[ledger_id] = {number: sizes[number] for number in range(end)}
        return end - 1

    async def _is_fence(self, ledger_id: int, number: int, size_bytes: int) -> bool:
        return size_bytes == len(FENCE) and await self._get(ledger_id, number) == FENCE

    async def _fence(self, ledger_id: int, end: int, sizes: dict[int, int]) -> int:
        """Take the number `end`, or the first free one after it; returns it."""
        while True:
            try:
                await self._do(partial(_create, self._entry(ledger_id, end), FENCE))
                return end
            except FileExistsError:
                entry = await self._get(ledger_id, end)
                if entry == FENCE:
                    return end
                sizes[end] = len(entry)
                end += 1

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """See `Home`."""
        sizes = self._opened.get(ledger_id, {})
        numbers: list[int] = []
        size_bytes = 0
        for number in range(first, min(last + 1, first + READ_ENTRIES_MAX)):
            size_bytes += sizes.get(number, 0)
            if number not in sizes or (numbers and size_bytes > READ_BYTES):
                break
            numbers.append(number)
        if not numbers:
            raise NoLedgerError(f"ledger {ledger_id} is not open, or has no entry {first}")
        return list(await asyncio.gather(*(self._get(ledger_id, number) for number in numbers)))

    async def close(self, ledger_id: int) -> None:
        """See `Home`."""
        self._written.pop(ledger_id, None)
        self._opened.pop(ledger_id, None)

    async def delete(self, ledger_id: int) -> None:
        """See `Home`."""
        await self.close(ledger_id)
        await self._do(partial(_remove, self._folder(ledger_id)))

    async def delete_all(self) -> None:
        """Delete every ledger of this incarnation; make none here from now on."""
        self._over = True
        # A thread may outlive its caller, and would leave its object behind.
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=ANSWER_SECONDS)
        await self._do(partial(_remove_all, folder_of(self._about.identity)))

    async def point(self, old: str, new: str) -> None:
        """See `Home`."""
        await self._point(old, new)

    def _folder(self, ledger_id: int) -> str:
        return f"{folder_of(self._about.identity)}/{ledger_id:020}"

    def _entry(self, ledger_id: int, number: int) -> str:
        return f"{self._folder(ledger_id)}/{number:010}"

    async def _make(self, name: str, data: bytes) -> None:
        if self._over:
            raise RefusedError("the log was deleted")
        try:
            await self._do(partial(_create, name, data))
        except FileExistsError:
            # A client that retries meets its own object.
            if await self._do(lambda store: store.read(name)) != data:
                raise FencedError(f"{name} was made by another writer") from None
        except FileNotFoundError:
            raise AwayError(f"{self.kind}: there is no such bucket or folder") from None

    async def _get(self, ledger_id: int, number: int) -> bytes:
        try:
            return await self._do(lambda store: store.read(self._entry(ledger_id, number)))
        except FileNotFoundError:
            await self._require_head(ledger_id)
            raise NoLedgerError(f"ledger {ledger_id} has no entry {number}") from None

    async def _require_head(self, ledger_id: int) -> None:
        """Raise NoLedgerError if the ledger is deleted, or about to be."""
        try:
            await self._do(lambda store: store.read(f"{self._folder(ledger_id)}/{ABOUT}"))
        except FileNotFoundError:
            raise NoLedgerError(f"there is no ledger {ledger_id}") from None

    async def _do(self, work: Callable[[Objects], ResultT]) -> ResultT:
        """Run `work` on the store. Raises HomeError, FileExistsError and FileNotFoundError."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._offloaded(work)
        except (FileExistsError, FileNotFoundError):
            raise
        except TimeoutError:
            raise AwayError(f"{self.kind} did not answer within {ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise AwayError(f"{self.kind}: {error}") from error

    async def _offloaded(self, work: Callable[[Objects], ResultT]) -> ResultT:
        done: list[ResultT] = []
        doing = asyncio.ensure_future(self._offload(lambda: done.append(work(self._objects()))))
        self._under_way.add(doing)
        doing.add_done_callback(self._ended)
        await asyncio.shield(doing)
        return done[0]

    def _ended(self, doing: asyncio.Future[object]) -> None:
        self._under_way.discard(doing)
        if not doing.cancelled():
            doing.exception()  # already raised to any caller that still waited


async def _end(end: int) -> int:
    return end


def _create(name: str, data: bytes, store: Objects) -> None:
    store.create(name, data)


def _remove(folder: str, store: Objects) -> None:
    store.remove(f"{folder}/{ABOUT}")
    store.remove(folder)


def _remove_all(folder: str, store: Objects) -> None:
    for name in store.sizes(folder):
        store.remove(f"{folder}/{name}/{ABOUT}")
    store.remove(folder)


def _require(written: _Written) -> None:
    """Raise a failed ledger's error."""
    if written.failure is not None:
        raise type(written.failure)(str(written.failure))
