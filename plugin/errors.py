"""Every error of the daemon and its tools, and the error codes on the wire.

Invariants:

- ``UserError`` and its subclasses are mistakes that a person can correct: the message is one line with the
  remedy; the command line prints it without a traceback and exits with ``exit_code``.
- ``ProtocolError`` is a broken rule of ``docs/protocol.md``: it ends a connection, never the daemon.
- ``StreamError`` ends one stream; the connection and its other streams stay.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes of an ERROR frame (``docs/protocol.md``)."""

    VERSION = 1
    MALFORMED = 2
    OVERSIZED = 3
    OUT_OF_ORDER = 4
    UNKNOWN_STREAM = 5
    ALREADY_OPEN = 6
    STALE_EPOCH = 7
    STORAGE = 8
    SHUTTING_DOWN = 9
    BUSY = 10
    FAILED = 11


class TidegateError(Exception):
    """Root of the errors of this package."""


class UserError(TidegateError):
    """A mistake that a person can repair; the message says how."""

    exit_code = 1


class ConfigError(UserError):
    """A setting is missing, unknown or has a value that makes no sense."""

    exit_code = 2


class DaemonAwayError(UserError):
    """Nobody answers on the daemon's socket or URL."""

    exit_code = 3


class UnknownNameError(UserError):
    """There is no topic or subscription of this name.

    bare: the line without the names of others, for readers who may not see them.
    """

    def __init__(self, said: str, bare: str | None = None) -> None:
        super().__init__(said)
        self.bare = bare or said


class NotNowError(UserError):
    """The daemon cannot do this now, and may be able to soon."""

    may_repeat = True
    """False if a part may be done, and the same request again would repeat it."""


class SocketInUseError(UserError):
    """Another daemon answers on the socket, or a foreign file is in its place."""


class StartError(UserError):
    """The daemon cannot start: data directory, socket directory or HTTP address."""


class SetupError(UserError):
    """Pulsar's distribution cannot be fetched: a missing tool, the network, the disk or the archive."""


class AttachError(UserError):
    """A Pulsar home cannot be attached to or detached from."""


class StopError(UserError):
    """The daemon stopped, but could not persist everything; durable data stays durable."""


class ProtocolError(TidegateError):
    """The peer broke a rule of the protocol; it gets ERROR on stream 0, and the connection is closed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StreamError(TidegateError):
    """One stream has to end; its peer gets ERROR on the stream, and the connection stays."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
