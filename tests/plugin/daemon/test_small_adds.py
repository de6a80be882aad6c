"""ADD frames of few entries that come together mean what they mean one after another."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tidegate.index import Entries, PositionSet, SubscriptionName
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.codec import decode, decode_adds, encode
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, Frame, FrameDecoder, FrameType
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Credit,
    Durable,
    Error,
    Held,
    Hello,
    MarkDelete,
    Open,
    Ping,
    Pong,
    Role,
    Unack,
    Welcome,
)

FAR_MS = 4_000_000_000_000
STREAMS = (1, 2, 3)


def topic(group: str, stream: int) -> SubscriptionName:
    return SubscriptionName(f"persistent://public/default/{group}-{stream}", "sub")


def some(rng: random.Random) -> list[tuple[int, int]]:
    return [(rng.randrange(3), rng.randrange(60)) for _ in range(rng.randint(1, 6))]


def frames_of(seed: int, mistake: str) -> tuple[list[bytes], dict[int, int]]:
    """Frames of three streams, mostly ADDs, the mistake amid them; the last number of each stream."""
    rng = random.Random(seed)  # noqa: S311 to be repeated
    seqs = dict.fromkeys(STREAMS, 0)
    made = []
    for number in range(120):
        stream = rng.choice(STREAMS)
        dice = rng.random()
        if dice < 0.05:
            made.append(encode(Credit(0), stream))
            continue
        seqs[stream] += 1
        seq = seqs[stream]
        positions = PositionSet.of(some(rng))
        if dice < 0.8:
            rows = [(FAR_MS + 7 * entry_id, ledger_id, entry_id) for ledger_id, entry_id in some(rng)]
            data = encode(Add(Entries.of(rows), near=rng.random() < 0.1), stream, seq)
        elif dice < 0.88:
            data = encode(Ack(positions), stream, seq)
        elif dice < 0.94:
            data = encode(Unack(positions), stream, seq)
        else:
            data = encode(MarkDelete((0, rng.randrange(20))), stream, seq)
        if number == 70:
            match mistake:
                case "out of order":
                    data = encode(Add(Entries.of([(FAR_MS, 9, 9)]), near=False), stream, seq + 1)
                case "out of range":
                    data = encode(Add(Entries.of([(FAR_MS, 9, -1)]), near=False), stream, seq)
                case "unknown stream":
                    made.append(encode(Add(Entries.of([(FAR_MS, 9, 9)]), near=False), 7, 1))
                case "damaged":
                    data = data[:-1] + bytes([data[-1] ^ 1])
        made.append(data)
    return made, seqs


class Peer:
    """A broker's end, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = FrameDecoder()
        self.errors: list[tuple[int, int]] = []
        self.durable: dict[int, int] = {}
        self.held = self.pong = 0
        self.greeted = self.ended = False

    async def read(self) -> None:
        data = await self.reader.read(65_536)
        self.ended = not data
        for frame in self.decoder.feed(data):
            match decode(frame):
                case Welcome():
                    self.greeted = True
                case Held() as held:
                    self.held += held.last
                case Pong():
                    self.pong = frame.seq
                case Ping():
                    self.writer.write(encode(Pong(), 0, frame.seq))
                case Error() as error:
                    self.errors.append((frame.stream, error.code))
                case Durable():
                    self.durable[frame.stream] = frame.seq

    async def round_trip(self, number: int) -> None:
        self.writer.write(encode(Ping(), 0, number))
        while self.pong < number and not self.ended:
            await self.read()


async def sent(socket_path: Path, group: str, frames: list[bytes], *, together: bool) -> Peer:
    """All of it sent, in one write, or each after the effect of the one before."""
    peer = Peer(*await asyncio.open_unix_connection(socket_path))
    peer.writer.write(encode(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, group, "test")))
    for stream in STREAMS:
        name = topic(group, stream)
        opened = Open(b"\x01" * 16, 1, 1, 0, 0, (-1, -1), name.topic, name.subscription, PositionSet())
        peer.writer.write(encode(opened, stream))
    while not peer.greeted or peer.held < len(STREAMS):
        await peer.read()
    for number, data in enumerate([b"".join(frames)] if together else frames, start=1):
        peer.writer.write(data)
        await peer.round_trip(number)
        if peer.ended:
            break
    return peer


@pytest.mark.parametrize("mistake", ["none", "out of order", "out of range", "unknown stream", "damaged"])
async def test_together_is_as_one_after_another(start: StartDaemon, socket_path: Path, mistake: str) -> None:
    async with start(heartbeat_ms=600_000) as daemon, asyncio.timeout(60):
        for seed in range(4):
            frames, seqs = frames_of(seed, mistake)
            groups = [f"{seed}-{how}" for how in ("one-by-one", "together")]
            peers = [
                await sent(socket_path, group, frames, together=group.endswith("together"))
                for group in groups
            ]
            assert peers[0].errors == peers[1].errors
            assert bool(peers[0].errors) == (mistake != "none")
            for stream in STREAMS:
                one, other = (daemon.engine.catalog.get(topic(group, stream)) for group in groups)
                assert one is not None and other is not None
                one.check()
                other.check()
                assert one.state.held == other.state.held
                assert one.state.acknowledged == other.state.acknowledged
                assert one.state.mark == other.state.mark
                assert list(one.timeline.pop_due(FAR_MS * 2, 1_000)) == list(
                    other.timeline.pop_due(FAR_MS * 2, 1_000)
                )
            if mistake in ("none", "unknown stream"):
                for peer in peers:
                    while peer.durable != seqs:
                        await peer.read()
            for peer in peers:
                peer.writer.close()


def test_what_several_frames_say_together() -> None:
    parts = [Entries.of([(FAR_MS + at, 1, at), (FAR_MS, 2, at)]) for at in range(5)]
    data = b"".join(encode(Add(part, near=True), 3, at) for at, part in enumerate(parts, start=1))
    frames = list(FrameDecoder().feed(data))
    assert decode_adds(frames) == Add(Entries.concat(parts), near=True)
    assert decode_adds(frames[:1]) == decode(frames[0])


@pytest.mark.parametrize("payload", [b"", b"\x01\0\0", b"\x01\0\0\0" + bytes(23), b"\0\0\0\0" + bytes(24)])
def test_a_frame_whose_records_are_not_as_many_as_it_says(payload: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_adds([Frame(FrameType.ADD, 1, 1, 0, payload)])
    assert refused.value.code == ErrorCode.MALFORMED
