"""The fate of each message, from some messages with all of their receipts.

Pure, on Arrow tables: Spark passes group after group, a test one table. `tidegate.plugin.checks` judges, as
in the demo and the drills.

Invariants: a message has a row for each subscription that should receive it (delivered, lost or pending);
each further receipt has its own (repeated), as has each received message never sent (unknown).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.plugin.checks import NEVER, early, first_receipts, lost, out_of_order, repeat_causes, repeats

Int64 = npt.NDArray[np.int64]
NONE = -1

SENT = pa.schema(
    [
        ("message_id", pa.string()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("sent_at_ms", pa.int64()),
        ("deliver_at_ms", pa.int64()),
    ]
)
RECEIVED = pa.schema(
    [
        ("message_id", pa.string()),
        ("subscription", pa.string()),
        ("received_at_ms", pa.int64()),
        ("redelivery_count", pa.int64()),
    ]
)
JUDGED = pa.schema(
    [
        ("message_id", pa.string()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("sent_at_ms", pa.int64()),
        ("deliver_at_ms", pa.int64()),
        ("subscription", pa.string()),
        ("received_at_ms", pa.int64()),
        ("redelivery_count", pa.int64()),
        ("verdict", pa.int8()),
        ("early", pa.bool_()),
        ("cause", pa.int8()),
    ]
)


class Verdict(IntEnum):
    """The fate of a message at a subscription, or the kind of a receipt."""

    DELIVERED = 0
    LOST = 1
    REPEATED = 2
    UNKNOWN = 3
    PENDING = 4
    SENT_TWICE = 5
    OUT_OF_ORDER = 6
    FOUND = 7


class Judgement(NamedTuple):
    """Judged rows (as ``JUDGED``), and their origins.

    sent_row, received_row, subscription: places in the input, `NONE` where there is none.
    """

    table: pa.Table
    verdict: npt.NDArray[np.int8]
    sent_row: Int64
    received_row: Int64
    subscription: Int64


def judge(
    sent: pa.Table, received: pa.Table, subscriptions: Sequence[str], until_ms: int | None = None
) -> pa.Table:
    """A table as ``JUDGED`` from tables as ``SENT`` and ``RECEIVED``.

    subscriptions: those that should receive everything. until_ms: a missing message due or sent later is
    pending; None: none is.
    """
    return judgement(sent, received, subscriptions, until_ms).table


def judgement(
    sent: pa.Table, received: pa.Table, subscriptions: Sequence[str], until_ms: int | None = None
) -> Judgement:
    """As `judge`, with the origins of each row."""
    sent, received = conform(sent, SENT), conform(received, RECEIVED)
    message, of_receipt = _numbered(sent["message_id"], received["message_id"])
    # Of a message recorded twice the first record counts.
    numbers, rows = np.unique(message, return_index=True)
    known = int(max(message.max(initial=-1), of_receipt.max(initial=-1))) + 1
    place = np.full(known, NONE, np.int64)
    place[numbers] = np.arange(len(numbers))
    ready = np.maximum(ints(sent["deliver_at_ms"]), ints(sent["sent_at_ms"]))[rows]
    expected = np.ones(len(ready), np.bool_) if until_ms is None else ready <= until_ms
    matched = _Matched(rows, expected, place[of_receipt], ints(received["received_at_ms"]))
    again = np.setdiff1d(np.arange(len(message)), rows)
    parts = [_Rows(again, _nothing(again), Verdict.SENT_TWICE, NONE)]
    names = received["subscription"].combine_chunks()
    for number, name in enumerate(subscriptions):
        mine = np.flatnonzero(pc.equal(names, name).fill_null(False).to_numpy(zero_copy_only=False))
        parts += _of_subscription(number, mine, matched)
    return _joined(sent, received, parts, subscriptions)


def find_out_of_order(delivered: pa.Table) -> pa.Table:
    """The deliveries (as ``JUDGED``, with all of each key) out of order, with that verdict."""
    delivered = conform(delivered, JUDGED)
    late = out_of_order(
        codes(delivered["subscription"], delivered["key"]),
        ints(delivered["deliver_at_ms"]),
        ints(delivered["sent_at_ms"]),
        ints(delivered["received_at_ms"]),
    )
    found = delivered.filter(pa.array(late))
    verdict = pa.array(np.full(found.num_rows, Verdict.OUT_OF_ORDER), pa.int8())
    return found.set_column(JUDGED.get_field_index("verdict"), JUDGED.field("verdict"), verdict)


class _Matched(NamedTuple):
    """Messages and receipts, with a number for each message.

    rows: each message's row in the sent table. expected: it should have come. message: the number of each
    receipt's message, or none. received_at_ms: of each receipt.
    """

    rows: Int64
    expected: npt.NDArray[np.bool_]
    message: Int64
    received_at_ms: Int64


class _Rows(NamedTuple):
    """Rows of the result: their sent and received rows, and their verdicts."""

    sent: Int64
    received: Int64
    verdict: Verdict
    subscription: int


def _of_subscription(number: int, mine: npt.NDArray[np.intp], matched: _Matched) -> list[_Rows]:
    """The fate of all messages at one subscription; ``mine``: its receipts."""
    stray = mine[matched.message[mine] == NONE]
    mine = mine[matched.message[mine] != NONE]
    message, received_at_ms = matched.message[mine], matched.received_at_ms[mine]
    first = first_receipts(len(matched.rows), message, received_at_ms)
    _, again = repeats([message], received_at_ms)
    once = np.setdiff1d(np.arange(len(mine)), again)
    missing = matched.rows[lost(matched.expected, first)]
    pending = matched.rows[lost(~matched.expected, first)]
    return [
        _Rows(matched.rows[message[once]], mine[once], Verdict.DELIVERED, number),
        _Rows(matched.rows[message[again]], mine[again], Verdict.REPEATED, number),
        _Rows(missing, _nothing(missing), Verdict.LOST, number),
        _Rows(pending, _nothing(pending), Verdict.PENDING, number),
        _Rows(_nothing(stray), stray, Verdict.UNKNOWN, number),
    ]


def _nothing(like: npt.NDArray[Any]) -> Int64:
    """`NONE`, once for each element."""
    return np.full(len(like), NONE, np.int64)


def _joined(
    sent: pa.Table, received: pa.Table, parts: Sequence[_Rows], subscriptions: Sequence[str]
) -> Judgement:
    sent_row = np.concatenate([part.sent for part in parts])
    received_row = np.concatenate([part.received for part in parts])
    of_sent, of_received = _taken(sent, sent_row), _taken(received, received_row)
    sizes = [len(part.sent) for part in parts]
    verdict = np.repeat(np.array([part.verdict for part in parts], np.int8), sizes)
    subscription = np.repeat(np.array([part.subscription for part in parts], np.int64), sizes)
    # The last name, which NONE selects, is empty.
    names = pa.array([*subscriptions, ""], pa.string()).take(
        pa.array(subscription % (len(subscriptions) + 1))
    )
    due, received_at = ints(of_sent["deliver_at_ms"]), ints(of_received["received_at_ms"])
    is_early = early(due, received_at) & (verdict == Verdict.DELIVERED)
    is_repeat = verdict == Verdict.REPEATED
    cause = pa.array(repeat_causes(ints(of_received["redelivery_count"])), mask=~is_repeat)
    message_id = pc.coalesce(of_sent["message_id"], of_received["message_id"])
    table = pa.Table.from_arrays(
        [
            message_id,
            *(of_sent[name] for name in ("topic", "key", "sent_at_ms", "deliver_at_ms")),
            names,
            of_received["received_at_ms"],
            of_received["redelivery_count"],
            pa.array(verdict, pa.int8()),
            pa.array(is_early),
            cause,
        ],
        schema=JUDGED,
    )
    return Judgement(table, verdict, sent_row, received_row, subscription)


def _taken(table: pa.Table, at: Int64) -> pa.Table:
    """The rows at these places; a row of nulls where there is none."""
    return table.take(pa.array(at, mask=at == NONE))


def _numbered(*columns: pa.ChunkedArray) -> list[Int64]:
    """The values of all columns as numbers; equal values get equal numbers."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    together = pa.chunked_array(chunks, pa.string()).combine_chunks().dictionary_encode()
    numbers = together.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(numbers, ends)


def codes(*columns: pa.ChunkedArray) -> Int64:
    """A number for each combination of values."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        (numbers,) = _numbered(column)
        codes = codes * (int(numbers.max(initial=0)) + 1) + numbers
    return codes


def ints(column: pa.ChunkedArray) -> Int64:
    """A column of times or counts; null is ``NEVER``."""
    result: Int64 = column.fill_null(NEVER).to_numpy().astype(np.int64, copy=False)
    return result


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema``, and no others, in its types."""
    return table.select(schema.names).cast(schema)
