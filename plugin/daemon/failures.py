"""Streams that fail: what the index refuses, and bugs, which end at most the stream that they are met in.

Invariants: what a bug may have left half done is not believed; what fails ten thousand times a second is a
line a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import Clock, DelayIndex, TidegateIndexError
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode, StreamError
from tidegate.plugin.seldom import Seldom, kind_of

if TYPE_CHECKING:
    import structlog


class Failures:
    """Tells the log, and says with which ERROR a stream ends."""

    def __init__(self, clock: Clock, log: structlog.typing.FilteringBoundLogger) -> None:
        self._seldom = Seldom(clock.monotonic_ns)
        self._log = log

    def refused(self, error: TidegateIndexError) -> StreamError:
        """The index does not take a frame, and says why."""
        more = self._seldom.more("frame")
        if more is not None:
            self._log.error("the index refuses a frame", error=str(error), **more)
        return StreamError(ErrorCode.STORAGE, str(error))

    def bug(self, index: DelayIndex | None, stream: str, error: Exception) -> StreamError:
        """What nobody foresaw, in a stream or before there was one; ``index`` is doubted from now on."""
        more = self._seldom.more(kind_of(error))
        if more is not None:
            self._log.error(
                "a stream failed unexpectedly, it is opened again; report it with the log",
                stream=stream,
                exc_info=error,
                **more,
            )
        if index is not None:
            index.doubt()
        return StreamError(ErrorCode.FAILED, f"a bug in the daemon, its log has more: {error!r}")

    def end(self, stream: Stream, error: Exception) -> None:
        """End a stream for a bug."""
        failure = self.bug(stream.session.index, repr(stream.session), error)
        stream.connection.end_stream(stream, failure.code, failure.message)
