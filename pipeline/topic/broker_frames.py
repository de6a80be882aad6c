"""The part of Pulsar's binary protocol that a reader needs: bytes only, no sockets.

    frame   := size:u32 command_size:u32 command [magic checksum metadata payload]

Commands are protobuf messages (`schema.py`); the bytes after one are a stored entry (`entry.py`). Pure.
Invariant: a frame is bounded before it is read; other input is a ``WireError``.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from tidegate.pipeline.errors import WireError
from tidegate.pipeline.topic.schema import COMMANDS, BaseCommand

FRAME_MAX_BYTES = 128 * 1024 * 1024
PROTOCOL_VERSION = 21
CLIENT_VERSION = "tidegate"

_SIZES = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_NAMES = {number: name for name, number in COMMANDS.items()}


class Frame(NamedTuple):
    """A command by its field's name, and the entry after it (empty without one).

    ``name`` is empty for a command unknown here.
    """

    name: str
    command: Any
    entry: bytes


def encode(name: str, **fields: Any) -> bytes:
    """The bytes of a command, such as ``encode("flow", consumer_id=1, message_permits=10)``.

    A field that is itself a message is a dictionary.
    """
    message = BaseCommand(type=COMMANDS[name])
    command = getattr(message, name)
    command.SetInParent()
    for field, value in fields.items():
        if isinstance(value, dict):
            part = getattr(command, field)
            part.SetInParent()
            for inner, inner_value in value.items():
                setattr(part, inner, inner_value)
        else:
            setattr(command, field, value)
    body = message.SerializeToString()
    return _SIZES.pack(len(body) + _SIZE.size, len(body)) + bytes(body)


class FrameDecoder:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are now complete. Raises ``WireError``."""
        self._data += data
        frames = []
        at = 0
        whole = bytes(self._data) if self._complete(0) else b""
        while len(whole) - at >= _SIZE.size and (size := self._complete(at)):
            end = at + _SIZE.size + size
            frames.append(_parse(whole[at + _SIZE.size : end]))
            at = end
        del self._data[:at]
        return frames

    def _complete(self, at: int) -> int:
        """The size of the frame at that place; 0 if it is incomplete."""
        if len(self._data) - at < _SIZE.size:
            return 0
        (size,) = _SIZE.unpack_from(self._data, at)
        if not _SIZE.size <= size <= FRAME_MAX_BYTES:
            raise WireError(f"a broker announces a frame of {size} bytes: is this a Pulsar service URL?")
        return size if len(self._data) - at >= _SIZE.size + size else 0


def _parse(frame: bytes) -> Frame:
    (size,) = _SIZE.unpack_from(frame)
    end = _SIZE.size + size
    if end > len(frame):
        raise WireError(f"a broker's command of {size} bytes is longer than its frame")
    try:
        message = BaseCommand.FromString(frame[_SIZE.size : end])
    except DecodeError as error:
        raise WireError(f"a broker's command cannot be read: {error}") from error
    name = _NAMES.get(message.type, "")
    if name and not message.HasField(name):
        raise WireError(f"a broker's command {name} is empty")
    return Frame(name, getattr(message, name) if name else None, frame[end:])
