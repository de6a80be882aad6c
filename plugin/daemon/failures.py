"""Streams that fail: refusals of the index, and bugs, which end at most the stream that meets them.

Invariants: state that a bug may have left half done does not count; a failure that repeats ten thousand times
a second is logged once a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import Clock, DelayIndex, TidegateIndexError
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode, StreamError
from tidegate.plugin.shared.seldom import Seldom, kind_of

if TYPE_CHECKING:
    import structlog


class Failures:
    """Logs a failure, and chooses the ERROR with which the stream ends."""

    def __init__(self, clock: Clock, log: structlog.typing.FilteringBoundLogger) -> None:
        self._seldom = Seldom(clock.monotonic_ns)
        self._log = log

    def refused(self, error: TidegateIndexError) -> StreamError:
        """The error for a frame refused by the index; it has the reason."""
        more = self._seldom.more("frame")
        if more is not None:
            self._log.error("the index refuses a frame", error=str(error), **more)
        return StreamError(ErrorCode.STORAGE, str(error))

    def bug(self, index: DelayIndex | None, stream: str, error: Exception) -> StreamError:
        """The error for an unforeseen exception, in a stream or before it began; doubts ``index``."""
        more = self._seldom.more(kind_of(error))
        if more is not None:
            self._log.error(
                "a stream failed unexpectedly and is opened again; report it with the log",
                stream=stream,
                exc_info=error,
                **more,
            )
        if index is not None:
            index.doubt()
        return StreamError(ErrorCode.FAILED, f"a bug in the daemon, its log has more: {error!r}")

    def end(self, stream: Stream, error: Exception) -> None:
        """End a stream because of a bug."""
        failure = self.bug(stream.session.index, repr(stream.session), error)
        stream.connection.end_stream(stream, failure.code, failure.message)
