"""Entries through a broker: redirects, moves, lost connections, refusals, frames that make no sense."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pipeline.fake_broker import CLOSE, LEDGER, FakeBroker, message
from tidegate.pipeline.errors import OptionError, TopicError, UnreachableError, WireError
from tidegate.pipeline.topic import broker as broker_module
from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.broker import ServiceUrl, TopicReader
from tidegate.pipeline.topic.broker_frames import FRAME_MAX_BYTES, FrameDecoder, encode
from tidegate.pipeline.topic.ranges import Position

TOPIC = "persistent://public/default/orders"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "_PAUSE_S", 0.001)


def read(broker: FakeBroker, first: int = 0, last: int = 9, access: Access | None = None) -> list[int]:
    reader = TopicReader(broker.url, access or Access(), TOPIC)
    found = reader.entries(Position(LEDGER, first), Position(LEDGER, last))
    return [entry.entry_id for _, entry in found]


def test_both_ends_are_inclusive() -> None:
    with FakeBroker() as broker:
        assert read(broker, 3, 6) == [3, 4, 5, 6]


def test_no_more_than_there_is() -> None:
    with FakeBroker() as broker:
        assert read(broker, 8, 99) == [8, 9]
        assert read(broker, 10, 99) == []
        assert TopicReader(broker.url, Access(), TOPIC).last_position() == Position(LEDGER, 9)


def test_an_empty_topic() -> None:
    def nothing(_: FakeBroker, command: Any, __: int) -> list[bytes]:
        none = {"ledger_id": (1 << 64) - 1, "entry_id": (1 << 64) - 1}
        return [encode("get_last_message_id_response", request_id=command.request_id, last_message_id=none)]

    with FakeBroker(get_last_message_id=nothing) as broker:
        assert TopicReader(broker.url, Access(), TOPIC).last_position() is None
        assert read(broker) == []


def test_what_lies_before_the_range_is_left_out() -> None:
    with FakeBroker(flow=[message(n) for n in range(10)]) as broker:
        assert read(broker, 4, 6) == [4, 5, 6]


def test_a_lookup_that_is_redirected() -> None:
    with FakeBroker() as owner:

        def elsewhere(_: FakeBroker, command: Any, __: int) -> list[bytes]:
            return [
                encode(
                    "lookup_response",
                    request_id=command.request_id,
                    response=0,
                    authoritative=True,
                    broker_service_url=owner.url,
                )
            ]

        with FakeBroker(lookup=elsewhere) as asked:
            assert read(asked) == list(range(10))
            assert "subscribe" not in asked.names()
        assert [command.authoritative for name, command in owner.seen if name == "lookup"] == [True]


def test_through_a_proxy() -> None:
    def through(_: FakeBroker, command: Any, __: int) -> list[bytes]:
        return [
            encode(
                "lookup_response",
                request_id=command.request_id,
                response=1,
                broker_service_url="pulsar://inside:6650",
                proxy_through_service_url=True,
            )
        ]

    with FakeBroker(lookup=through) as proxy:
        assert read(proxy) == list(range(10))
        asked = [command.proxy_to_broker_url for name, command in proxy.seen if name == "connect"]
        assert asked == ["", "inside:6650"]


def test_redirects_in_circles() -> None:
    def back(broker: FakeBroker, command: Any, _: int) -> list[bytes]:
        return [
            encode(
                "lookup_response", request_id=command.request_id, response=0, broker_service_url=broker.url
            )
        ]

    with FakeBroker(lookup=back) as broker, pytest.raises(UnreachableError, match="in circles"):
        read(broker)


def moving(end: list[bytes]) -> Any:
    """Five entries a connection, then ``end``."""

    def flow(broker: FakeBroker, _: Any, __: int) -> list[bytes]:
        start = next(
            command for name, command in reversed(broker.seen) if name == "subscribe"
        ).start_message_id
        return [message(n) for n in range(start.entry_id, min(start.entry_id + 3, 10))] + end

    return flow


@pytest.mark.parametrize("end", [[CLOSE], [encode("close_consumer", consumer_id=1, request_id=0)]])
def test_each_entry_once_although_the_topic_moves(end: list[bytes]) -> None:
    with FakeBroker(flow=moving(end)) as broker:
        assert read(broker) == list(range(10))
        assert broker.names().count("subscribe") == 4


def test_a_broker_that_never_gets_on() -> None:
    with FakeBroker(flow=[CLOSE]) as broker, pytest.raises(UnreachableError, match="closed the connection"):
        read(broker)


def test_a_broker_that_is_not_there() -> None:
    with FakeBroker() as broker:
        url = broker.url
    with pytest.raises(UnreachableError, match="no broker answers"):
        TopicReader(url, Access(), TOPIC).last_position()


def test_pings_are_answered() -> None:
    with FakeBroker(flow=[encode("ping"), *[message(n) for n in range(10)]]) as broker:
        assert read(broker) == list(range(10))
        broker.wait_for("pong")


def test_a_token_is_told_and_told_again_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PULSAR_TOKEN", "s3cret")
    challenge = encode("auth_challenge", challenge={"auth_method_name": "token", "auth_data": b"again"})
    with FakeBroker(flow=[challenge, *[message(n) for n in range(10)]]) as broker:
        assert read(broker) == list(range(10))
        told = [command.auth_data for name, command in broker.seen if name == "connect"]
        assert set(told) == {b"s3cret"}
        assert broker.wait_for("auth_response").response.auth_data == b"s3cret"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (11, TopicError, "there is no topic"),
        (4, TopicError, "no permission"),
        (3, TopicError, "does not know who"),
        (17, TopicError, "no name of a topic"),
        (15, TopicError, "refuses"),
        (6, UnreachableError, "cannot serve"),
    ],
)
@pytest.mark.parametrize("step", ["lookup", "subscribe", "get_last_message_id"])
def test_refusals(code: int, kind: type[TopicError], words: str, step: str) -> None:
    def refuse(_: FakeBroker, command: Any, __: int) -> list[bytes]:
        said = "because\n\x1b[31mof you"
        if step == "lookup":
            return [
                encode("lookup_response", request_id=command.request_id, response=2, error=code, message=said)
            ]
        return [encode("error", request_id=command.request_id, error=code, message=said)]

    with FakeBroker(**{step: refuse}) as broker, pytest.raises(kind, match=words) as raised:
        read(broker)
    assert "because ?[31mof you" in str(raised.value)


def test_a_refusal_to_connect() -> None:
    refusal = [encode("error", request_id=(1 << 64) - 1, error=3, message="who?")]
    with FakeBroker(connect=refusal) as broker, pytest.raises(TopicError, match="does not know who"):
        read(broker)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">II", FRAME_MAX_BYTES + 1, 10),
        struct.pack(">II", 3, 10),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">II", 8, 100) + b"\x00" * 4,
        struct.pack(">II", 8, 4) + b"\xff\xff\xff\xff",
        struct.pack(">II", 6, 2) + b"\x08\x03",
    ],
)
def test_frames_that_make_no_sense(frame: bytes) -> None:
    with FakeBroker(connect=[frame]) as broker, pytest.raises(WireError):
        read(broker)


def test_a_message_that_makes_no_sense() -> None:
    with FakeBroker(flow=[message(0, b"\x0e\x01garbage")]) as broker, pytest.raises(WireError):
        read(broker)


def test_commands_of_a_newer_broker_are_passed_over() -> None:
    unknown = struct.pack(">II", 7, 3) + b"\x08\xc8\x01"
    with FakeBroker(flow=[unknown, *[message(n) for n in range(10)]]) as broker:
        assert read(broker) == list(range(10))


@settings(deadline=None)
@given(st.data())
def test_frames_come_out_however_the_bytes_are_cut(data: st.DataObject) -> None:
    stream = b"".join([encode("ping"), message(3), encode("success", request_id=7), message(4)])
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=8)))
    decoder = FrameDecoder()
    names = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        names += [frame.name for frame in decoder.feed(stream[begin:end])]
    assert names == ["ping", "message", "success", "message"]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        FrameDecoder().feed(data)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("pulsar://host", ServiceUrl(False, "host", 6650)),
        ("pulsar+ssl://host", ServiceUrl(True, "host", 6651)),
        ("pulsar://a:1,b:2", ServiceUrl(False, "a", 1)),
        ("pulsar://[::1]:7", ServiceUrl(False, "::1", 7)),
    ],
)
def test_service_urls(text: str, url: ServiceUrl) -> None:
    assert ServiceUrl.parse(text) == url


@pytest.mark.parametrize("text", ["", "host:6650", "http://host", "pulsar://", "pulsar://host:port"])
def test_what_is_no_service_url(text: str) -> None:
    with pytest.raises(OptionError):
        ServiceUrl.parse(text)
