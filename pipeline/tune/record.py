"""A trace from a running daemon: the arrivals during a watch, as a CSV file.

The daemon samples (`plugin/daemon/recorder.py`): a trace of every eighth entry stands for eight times the
traffic. Invariant: the file is complete or absent.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.pipeline.errors import OptionError, TraceError
from tidegate.plugin.wire.session import DaemonSession

_LOOK_S = 2.0


class Recording(NamedTuple):
    """A written trace; the traffic is ``stride`` times as large."""

    path: Path
    entries: int
    seen: int
    stride: int


def record(  # noqa: PLR0917 all of it is asked for
    socket: Path,
    subscription: str | None,
    seconds: float,
    path: Path,
    note: Callable[[str], None],
    end: threading.Event | None = None,
) -> Recording:
    """Watch for ``seconds``, or until ``end`` is set. Raises ``UserError``.

    subscription: as ``TOPIC:SUBSCRIPTION``, None for all. note: called as soon as the daemon records, so that
    the user can start the traffic without loss, and then at each change.
    """
    request: dict[str, Any] = {"what": "record", **_named(subscription)}
    with DaemonSession(socket) as session:
        told = session.ask(request)["seen"]
        end, until_s = end or threading.Event(), time.monotonic() + seconds
        note(f"recording: {_so_far(told, seconds)}")
        while (left_s := until_s - time.monotonic()) > 0 and not end.wait(min(left_s, _LOOK_S)):
            seen = session.ask(request)["seen"]
            if seen != told:
                told = seen
                note(_so_far(seen, until_s - time.monotonic()))
        answer = session.ask(request)
    if not answer["entries"]:
        raise TraceError(
            f"no delayed message arrived within {seconds:g} s: record for longer with --record, "
            "or take a topic's with --from-topic"
        )
    columns = [np.frombuffer(base64.b64decode(answer[one]), "<i8") for one in ("arrival_ms", "deliver_at_ms")]
    _write(path, np.column_stack(columns))
    return Recording(path, int(answer["entries"]), int(answer["seen"]), int(answer["stride"]))


def _so_far(seen: int, left_s: float) -> str:
    return f"{seen:,} delayed messages so far, {max(left_s, 0):.0f} s to go"


def _write(path: Path, rows: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="ascii") as file:
            np.savetxt(file, rows, fmt="%d", delimiter=",", header="arrival_ms,deliver_at_ms", comments="")
        temporary.replace(path)
    except OSError as error:
        raise OptionError(
            f"cannot write {path}: {error.strerror or error}; choose another --report"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _named(subscription: str | None) -> dict[str, str]:
    if subscription is None:
        return {}
    topic, colon, name = subscription.rpartition(":")
    if not colon or not topic or not name:
        raise OptionError(
            f"--subscription {subscription[:80]}: with --from-daemon write it as TOPIC:SUBSCRIPTION"
        )
    if "://" not in topic:
        topic = "persistent://" + (topic if topic.count("/") == 2 else f"public/default/{topic}")
    return {"topic": topic, "subscription": name}
