"""ADD frames of few entries, gathered to be applied together.

In frames of five an entry costs the index many times as much as in frames of thousands. Invariants: the
result is as if each frame had been applied on arrival; the gathered frames of one stream have consecutive
numbers and the same flags.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.wire.frames import Frame, FrameType

SMALL_BYTES = 2_048  # of payload: larger ADD frames are applied at once


class Gathered(NamedTuple):
    """Frames that wait to be applied: by stream, and all in order of arrival."""

    by_stream: dict[Stream, list[Frame]]
    arrived: list[Frame]


class SmallAdds:
    """The gathered frames of one connection."""

    def __init__(self) -> None:
        self._gathered = Gathered({}, [])

    def gather(self, frame: Frame, stream: Stream | None) -> bool:
        """Keep an ADD of few entries that continues the last one of its stream; false if it does not."""
        if stream is None or frame.type is not FrameType.ADD or len(frame.payload) > SMALL_BYTES:
            return False
        frames = self._gathered.by_stream.setdefault(stream, [])
        if frames and (frame.seq != frames[-1].seq + 1 or frame.flags != frames[-1].flags):
            return False
        frames.append(frame)
        self._gathered.arrived.append(frame)
        return True

    def pop_gathered(self) -> Gathered | None:
        """The frames gathered since the last call, None if there are none."""
        if not self._gathered.arrived:
            return None
        taken, self._gathered = self._gathered, Gathered({}, [])
        return taken
