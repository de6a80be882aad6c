"""The spelling of message ids: ``ledger:entry``, of a partition ``ledger:entry:partition``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidegate.index import ENTRY_ID_MAX, Position
from tidegate.plugin.errors import UserError

_ID = re.compile(r"(\d{1,19}):(\d{1,19})(?::(-?\d{1,9})(?::(-?\d{1,9}))?)?", re.ASCII)
_PYTHON_ID = re.compile(r"\((\d+),(\d+),(-?\d+),(-?\d+)\)", re.ASCII)
_LEDGER_ID_MAX = (1 << 63) - 1
_NONE = -1


def message_id(partition: int | None, ledger_id: int, entry_id: int) -> str:
    """The printed id of a message."""
    return f"{ledger_id}:{entry_id}" if partition is None else f"{ledger_id}:{entry_id}:{partition}"


def parse_id(text: str) -> tuple[Position, int | None]:
    """The position in an id, and its partition if it has one. Raises ``UserError``."""
    stripped = text.strip()
    found = _ID.fullmatch(stripped) or _PYTHON_ID.fullmatch(stripped.replace(" ", ""))
    if found is None:
        raise UserError(f"{text[:80]!r} is no message id: write ledger:entry, as in 17:4711")
    ledger_id, entry_id = int(found[1]), int(found[2])
    partition, batch_index = (_NONE if one is None else int(one) for one in (found[3], found[4]))
    if ledger_id > _LEDGER_ID_MAX or entry_id > ENTRY_ID_MAX or min(partition, batch_index) < _NONE:
        raise UserError(f"{text[:80]!r} is no message id: a number is out of range")
    if batch_index != _NONE:
        raise UserError(
            f"{text[:80]!r} is one message of a batch, which waits as one: give ledger:entry of all of it"
        )
    return (ledger_id, entry_id), None if partition == _NONE else partition


def cursor_of(entry: Mapping[str, Any]) -> str:
    """The cursor behind an entry of a page: its time and position. Raises ``UserError``."""
    (ledger_id, entry_id), _ = parse_id(str(entry["message_id"]))
    return f"{int(entry['deliver_at_ms'])}:{ledger_id}:{entry_id}"
