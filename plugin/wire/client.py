"""Asks a running daemon a question over its socket: QUERY and REPLY.

Invariant: no answer within the time limit, for whatever reason, is a ``DaemonAwayError``, a refusal a
``UserError``; both messages name the socket.
"""

from __future__ import annotations

import os
import socket
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tidegate.plugin.errors import DaemonAwayError, ProtocolError, UnknownNameError, UserError
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import Query, Reply, json_body
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Error, Hello, Ping, Pong, Role

TIMEOUT_SECONDS = 5.0
_QUERY_SEQ = 1
_READ_BYTES = 65_536


def ask_socket(path: Path, request: dict[str, Any], timeout_s: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """The daemon's answer to ``request``. Raises ``UserError``."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(os.fspath(path))
            return _converse(connection, request, time.monotonic() + timeout_s)
    except TimeoutError as error:
        raise DaemonAwayError(f"the daemon on {path} does not answer within {timeout_s:g} s") from error
    except PermissionError as error:
        raise UserError(f"no permission to talk to {path}: run this as the daemon's user") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise DaemonAwayError(
            f"no daemon answers on {path} ({reason}): start it with tidegate serve, or give its --socket"
        ) from error
    except ProtocolError as error:
        raise UserError(f"what answers on {path} does not speak this protocol: {error}") from error


def _converse(connection: socket.socket, request: dict[str, Any], deadline: float) -> dict[str, Any]:
    hello = Hello(VERSION_MIN, VERSION_MAX, Role.CONTROL, f"control-{os.getpid()}", "tidegate")
    connection.sendall(encode(hello) + encode(Query(json_body(request)), seq=_QUERY_SEQ))
    decoder = FrameDecoder()
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("it closed the connection")
        for frame in decoder.feed(data):
            message = decode(frame)
            if isinstance(message, Reply) and frame.seq == _QUERY_SEQ:
                return _checked(message.answer())
            if isinstance(message, Error):
                raise UserError(f"the daemon refuses: {message.message}")
            if isinstance(message, Ping):
                connection.sendall(encode(Pong(), seq=frame.seq))


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        unknown = answer.get("status") == HTTPStatus.NOT_FOUND
        raise (UnknownNameError if unknown else UserError)(f"the daemon refuses: {answer['error']}")
    return answer
