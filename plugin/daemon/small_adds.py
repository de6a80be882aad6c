"""ADD frames of few entries, gathered so that they are applied together.

Five entries at a time cost the index many times as much each as thousands do. Invariant: the result is as if
the frames had been applied as they came; those of one stream that are gathered have numbers without a gap and
the same flags.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.wire.frames import Frame, FrameType

SMALL_BYTES = 2_048  # of payload: larger ADD frames are applied as they come


class Gathered(NamedTuple):
    """Frames that wait to be applied: by stream, and all of them as they came."""

    by_stream: dict[Stream, list[Frame]]
    arrived: list[Frame]


class SmallAdds:
    """What has been gathered of one connection."""

    def __init__(self) -> None:
        self._gathered = Gathered({}, [])

    def keep(self, frame: Frame, stream: Stream | None) -> bool:
        """Keep an ADD of few entries that goes on where the last of its stream has ended; whether it does."""
        if stream is None or frame.type is not FrameType.ADD or len(frame.payload) > SMALL_BYTES:
            return False
        frames = self._gathered.by_stream.setdefault(stream, [])
        if frames and (frame.seq != frames[-1].seq + 1 or frame.flags != frames[-1].flags):
            return False
        frames.append(frame)
        self._gathered.arrived.append(frame)
        return True

    def take(self) -> Gathered | None:
        """What was gathered since the last call, None if nothing was."""
        if not self._gathered.arrived:
            return None
        taken, self._gathered = self._gathered, Gathered({}, [])
        return taken
