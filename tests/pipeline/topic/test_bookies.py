"""Entries from bookies: every one once and in order, whatever some of the bookies do."""

from __future__ import annotations

import contextlib
import socket
import struct
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pipeline.entries import batch_response, stored
from tests.support.pipeline.fake_bookie import FakeBookie
from tidegate.pipeline.errors import OptionError, TopicError, UnreachableError, WireError
from tidegate.pipeline.topic.bookie_frames import FRAME_MAX_BYTES, frame_size, parse_response, payloads_of
from tidegate.pipeline.topic.bookies import Bookies, MissingError, parse_address
from tidegate.pipeline.topic.ranges import Ledger, Segment
from tidegate.plugin.local.process import free_ports

LEDGER = 5
ENTRIES = {(LEDGER, number): f"entry {number}".encode() for number in range(100)}


def read(ledger: Ledger, first: int = 0, last: int = 99, **options: float) -> list[tuple[int, bytes]]:
    with Bookies(**options) as bookies:  # type: ignore[arg-type]
        return [
            (entry_id, payload)
            for batch in bookies.entries(ledger, first, last)
            for entry_id, payload in enumerate(batch.payloads, batch.first)
        ]


def ledger(*bookies: FakeBookie | str, write_quorum: int | None = None, digest: str = "CRC32C") -> Ledger:
    names = tuple(one if isinstance(one, str) else one.address for one in bookies)
    return Ledger(LEDGER, 100, False, digest, write_quorum or len(names), (Segment(0, names),))


def expected(first: int = 0, last: int = 99) -> list[tuple[int, bytes]]:
    return [(number, ENTRIES[LEDGER, number]) for number in range(first, last + 1)]


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "DUMMY"])
def test_one_bookie(digest: str) -> None:
    with FakeBookie(ENTRIES, batch_max=7, digest=digest) as bookie:
        assert read(ledger(bookie, digest=digest), 3, 90) == expected(3, 90)


def test_a_bookie_under_another_name() -> None:
    with FakeBookie(ENTRIES) as bookie, Bookies({"rack-1": bookie.address}) as bookies:
        (batch,) = bookies.entries(ledger("rack-1"), 0, 99)
        assert len(batch.payloads) == 100


def test_a_ledger_that_moved_to_other_bookies() -> None:
    late = {key: value for key, value in ENTRIES.items() if key[1] >= 40}
    early = {key: value for key, value in ENTRIES.items() if key[1] < 40}
    with FakeBookie(early) as first, FakeBookie(late) as second:
        moved = Ledger(
            LEDGER, 100, False, "CRC32C", 1, (Segment(0, (first.address,)), Segment(40, (second.address,)))
        )
        assert read(moved) == expected()


def free_address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def test_one_of_two_is_away() -> None:
    with FakeBookie(ENTRIES) as bookie:
        for bookies in ((free_address(), bookie), (bookie, free_address())):
            assert read(ledger(*bookies)) == expected()


def test_one_of_two_closes_the_connection_in_the_middle() -> None:
    with FakeBookie(ENTRIES, batch_max=10, cut_after=3) as weak, FakeBookie(ENTRIES, batch_max=10) as strong:
        assert read(ledger(weak, strong)) == expected()
        assert read(ledger(strong, weak)) == expected()


def test_one_of_two_lacks_an_entry() -> None:
    holed = {key: value for key, value in ENTRIES.items() if key[1] != 50}
    with FakeBookie(holed) as first, FakeBookie(ENTRIES) as second:
        assert read(ledger(first, second)) == expected()
        assert read(ledger(second, first)) == expected()


def test_one_of_two_has_damaged_entries() -> None:
    def flip(frame: bytes) -> bytes:
        return frame[:-1] + bytes([frame[-1] ^ 1])

    with FakeBookie(ENTRIES, spoil=flip) as damaged, FakeBookie(ENTRIES) as sound:
        assert read(ledger(damaged, sound)) == expected()
        assert read(ledger(sound, damaged)) == expected()
        with pytest.raises(WireError, match="fails its digest"):
            read(ledger(damaged))


def test_nobody_has_an_entry() -> None:
    holed = {key: value for key, value in ENTRIES.items() if key[1] != 50}
    with FakeBookie(holed) as first, FakeBookie(holed) as second, pytest.raises(MissingError, match="5:50"):
        read(ledger(first, second))


def test_nobody_answers() -> None:
    with pytest.raises(UnreachableError, match="does not answer"):
        read(ledger(free_address(), free_address()))


def test_one_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(UnreachableError, match="in time"):
        read(ledger(f"127.0.0.1:{silent.getsockname()[1]}"), timeout_s=0.2)


class TestStriped:
    """Three bookies, each entry on two of them: none has a row of entries in a piece."""

    def stack(self, stack: ExitStack, *left_out: tuple[int, int]) -> list[FakeBookie]:
        kept: list[dict[tuple[int, int], bytes]] = [{}, {}, {}]
        for (ledger_id, entry_id), payload in ENTRIES.items():
            for copy in range(2):
                at = (entry_id + copy) % 3
                if (at, entry_id) not in left_out:
                    kept[at][ledger_id, entry_id] = payload
        return [stack.enter_context(FakeBookie(one)) for one in kept]

    def test_all_there(self) -> None:
        with ExitStack() as stack:
            assert read(ledger(*self.stack(stack), write_quorum=2), 5, 95) == expected(5, 95)

    def test_one_away(self) -> None:
        with ExitStack() as stack:
            first, _, third = self.stack(stack)
            assert read(ledger(first, free_address(), third, write_quorum=2)) == expected()

    def test_some_copies_are_missing(self) -> None:
        with ExitStack() as stack:
            bookies = self.stack(stack, (0, 0), (1, 1), (2, 1 + 1))
            assert read(ledger(*bookies, write_quorum=2)) == expected()

    def test_both_copies_of_one_are_missing(self) -> None:
        with ExitStack() as stack, pytest.raises(MissingError, match="5:3"):
            read(ledger(*self.stack(stack, (0, 3), (1, 3)), write_quorum=2))


def spoiled(frame: bytes) -> None:
    with FakeBookie(ENTRIES, spoil=lambda _: frame) as bookie:
        read(ledger(bookie))


@pytest.mark.parametrize(
    "frame",
    [
        batch_response(LEDGER, 0, 99, [stored(LEDGER, 0, b"x")]),
        batch_response(LEDGER, 0, 0, []),
        batch_response(LEDGER, 0, 0, [stored(LEDGER, 1, b"x")]),
        batch_response(LEDGER, 0, 0, [stored(6, 0, b"x")]),
        batch_response(6, 0, 0, [stored(LEDGER, 0, b"x")]),
        batch_response(LEDGER, 0, 0, [b"short"]),
        batch_response(LEDGER, 0, 0, [stored(LEDGER, n, b"x") for n in range(101)]),
        batch_response(LEDGER, 0, 0, []) + b"\x00\x00\x01\x00tail",
        batch_response(LEDGER, 0, 0, []) + b"\x00",
        b"\x03" + batch_response(LEDGER, 0, 0, [])[1:],
        b"\x02\x09" + batch_response(LEDGER, 0, 0, [])[2:],
    ],
)
def test_an_answer_that_makes_no_sense(frame: bytes) -> None:
    with pytest.raises(WireError):
        spoiled(frame)


def test_an_answer_that_refuses() -> None:
    with pytest.raises(UnreachableError, match="too many requests"):
        spoiled(batch_response(LEDGER, 0, 0, [], 106))
    with pytest.raises(UnreachableError, match="error 999"):
        spoiled(batch_response(LEDGER, 0, 0, [], 999))


@pytest.mark.parametrize("size", [0, 23, FRAME_MAX_BYTES + 1, 0xFFFFFFFF])
def test_a_frame_of_no_possible_size(size: int) -> None:
    with pytest.raises(WireError):
        frame_size(struct.pack(">I", size))


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_any_frame_is_an_answer_or_a_wire_error(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        response = parse_response(frame)
        payloads_of(response, response.ledger_id, 0, "CRC32C")


def test_a_digest_that_needs_a_password() -> None:
    with pytest.raises(WireError, match=r"HMAC.*read through the broker"):
        payloads_of(parse_response(batch_response(LEDGER, 0, 0, [])), LEDGER, 0, "HMAC")


def test_a_ledger_whose_place_is_not_known() -> None:
    with pytest.raises(TopicError, match="read through the broker"):
        read(Ledger(LEDGER, 100))


@pytest.mark.parametrize("text", ["bookie", "host:", ":3181", "host:0", "host:99999", "host:x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(OptionError):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("host:3181") == ("host", 3181)
    assert parse_address("[::1]:3181") == ("::1", 3181)
