"""One round of an audit beside production: new records compared with open ones.

Pure, on Arrow tables. A round leaves three to the next: *open* messages (undelivered somewhere, or still
repeatable), the *receipts* of these and of messages not yet sent, and for each key the *furthest* delivered
message. It reports each fact once.

Its time is the watermark: no older record is expected. A message is lost ``grace_ms`` after it was ready; if
it comes later, it is found again. ``forget_ms`` after its fate is complete it is forgotten; a later repeat
counts as unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.pipeline.audit.judge import (
    JUDGED,
    NONE,
    RECEIVED,
    SENT,
    Int64,
    Judgement,
    Verdict,
    codes,
    conform,
    ints,
    judgement,
)
from tidegate.plugin.checks import out_of_order

SUBSCRIPTIONS_MAX = 60
"""A bit each in `told_lost` and `got`."""

OPEN = SENT.append(pa.field("told_lost", pa.int64())).append(pa.field("got", pa.int64()))
KEPT = RECEIVED.append(pa.field("told", pa.bool_()))
FURTHEST = pa.schema(
    [
        ("subscription", pa.string()),
        ("key", pa.string()),
        ("ready_ms", pa.int64()),
        ("sent_at_ms", pa.int64()),
        ("received_at_ms", pa.int64()),
    ]
)

Bools = npt.NDArray[np.bool_]


class Limits(NamedTuple):
    """The time, and the limits. subscriptions: those that should receive everything."""

    watermark_ms: int
    grace_ms: int
    forget_ms: int
    subscriptions: tuple[str, ...]


class Round(NamedTuple):
    """A round's report (as ``JUDGED``), and the tables for the next one (as ``OPEN`` and ``KEPT``)."""

    told: pa.Table
    open: pa.Table
    kept: pa.Table


def play(sent: pa.Table, received: pa.Table, limits: Limits) -> Round:
    """One round. ``sent`` as ``OPEN`` and ``received`` as ``KEPT``: kept rows, then new ones."""
    sent, received = conform(sent, OPEN), conform(received, KEPT)
    found = judgement(sent.select(SENT.names), received.select(RECEIVED.names), limits.subscriptions)
    rows = _Known(found, sent, received)
    news = _news(rows, limits)
    lost_now = news & (found.verdict == Verdict.LOST)
    told_lost = rows.told_lost.copy()
    np.bitwise_or.at(told_lost, found.sent_row[lost_now], rows.bit[lost_now])
    got = np.zeros(sent.num_rows, np.int64)
    np.bitwise_or.at(got, found.sent_row[rows.is_delivered], rows.bit[rows.is_delivered])
    told = rows.told.copy()
    told[found.received_row[(rows.is_matched | news) & rows.has_receipt]] = True
    sent = _with(_with(sent, OPEN, "told_lost", told_lost), OPEN, "got", got)
    received = _with(received, KEPT, "told", told)
    needed, needed_receipts = _still_needed(rows, sent, received, limits)
    return Round(_told(rows, news), sent.filter(pa.array(needed)), received.filter(pa.array(needed_receipts)))


def play_order(furthest: pa.Table, delivered: pa.Table, limits: Limits) -> tuple[pa.Table, pa.Table]:
    """(the deliveries out of order, the furthest of each key now).

    ``furthest`` as ``FURTHEST``; ``delivered`` as ``JUDGED``: new deliveries of messages with a key.
    """
    furthest, delivered = conform(furthest, FURTHEST), conform(delivered, JUDGED)
    new = pa.Table.from_arrays(
        [
            delivered["subscription"],
            delivered["key"],
            pa.array(_ready(delivered)),
            delivered["sent_at_ms"],
            delivered["received_at_ms"],
        ],
        schema=FURTHEST,
    )
    together = pa.concat_tables([furthest, new])
    key = codes(together["subscription"], together["key"])
    due, sent, received = (ints(together[name]) for name in ("ready_ms", "sent_at_ms", "received_at_ms"))
    late = out_of_order(key, due, sent, received)[furthest.num_rows :]
    # The furthest of each key is the last in due order.
    order = np.lexsort((received, sent, due, key))
    last = order[np.append(key[order][1:] != key[order][:-1], True)] if len(order) else order
    last = last[received[last] + limits.forget_ms > limits.watermark_ms]
    return _marked(delivered.filter(pa.array(late)), Verdict.OUT_OF_ORDER), together.take(pa.array(last))


class _Known:
    """Judged rows with earlier rounds' reports about them."""

    def __init__(self, found: Judgement, sent: pa.Table, received: pa.Table) -> None:
        self.found = found
        self.told = received["told"].fill_null(False).to_numpy().astype(np.bool_)
        self.told_lost = sent["told_lost"].fill_null(0).to_numpy().astype(np.int64)
        self.bit = np.int64(1) << np.maximum(found.subscription, 0)
        self.has_receipt = found.received_row != NONE
        self.is_matched = self.has_receipt & (found.sent_row != NONE)
        self.is_delivered = found.verdict == Verdict.DELIVERED
        self.was_told = np.zeros(len(found.verdict), np.bool_)
        self.was_told[self.has_receipt] = self.told[found.received_row[self.has_receipt]]
        self.was_lost = np.zeros(len(found.verdict), np.bool_)
        of_message = found.sent_row != NONE
        lost = self.told_lost[found.sent_row[of_message]] & self.bit[of_message]
        self.was_lost[of_message] = lost != 0


def _news(rows: _Known, limits: Limits) -> Bools:
    """A mask of the rows to report now."""
    verdict, table = rows.found.verdict, rows.found.table
    over_ms = limits.watermark_ms - limits.grace_ms
    news = ~rows.was_told
    news &= (verdict != Verdict.UNKNOWN) | (ints(table["received_at_ms"]) <= over_ms)
    news &= (verdict != Verdict.LOST) | ((_ready(table) <= over_ms) & ~rows.was_lost)
    return news


def _told(rows: _Known, news: Bools) -> pa.Table:
    """The rows to report, adjusted to the reports of earlier rounds."""
    found = rows.found
    pair = found.sent_row * SUBSCRIPTIONS_MAX + found.subscription
    # A receipt earlier than the reported first one, but known only now, is a repeat.
    again = news & rows.is_delivered & np.isin(pair, pair[rows.was_told & rows.is_matched])
    verdict = np.where(again, np.int8(Verdict.REPEATED), found.verdict)
    early = found.table["early"].to_numpy(zero_copy_only=False) & ~again
    table = _with(_with(found.table, JUDGED, "verdict", verdict), JUDGED, "early", early)
    back = found.table.filter(pa.array(news & rows.is_delivered & rows.was_lost))
    return pa.concat_tables([table.filter(pa.array(news)), _marked(back, Verdict.FOUND)])


def _still_needed(rows: _Known, sent: pa.Table, received: pa.Table, limits: Limits) -> tuple[Bools, Bools]:
    """Masks of the messages and receipts that may need further reports."""
    found, over_ms = rows.found, limits.watermark_ms - limits.grace_ms - limits.forget_ms
    everyone = np.int64((1 << len(limits.subscriptions)) - 1)
    settled = (ints(sent["told_lost"]) | ints(sent["got"])) & everyone == everyone
    last = _ready(sent)
    times = ints(found.table["received_at_ms"])
    np.maximum.at(last, found.sent_row[rows.is_matched], times[rows.is_matched])
    needed = ~(settled & (last <= over_ms))
    needed[found.sent_row[found.verdict == Verdict.SENT_TWICE]] = False
    needed_receipts = ints(received["received_at_ms"]) > over_ms
    mine = rows.is_matched
    needed_receipts[found.received_row[mine]] = needed[found.sent_row[mine]]
    return needed, needed_receipts


def _ready(table: pa.Table) -> Int64:
    """The times at which messages could be delivered: when due, but not before they were sent."""
    result: Int64 = np.maximum(ints(table["deliver_at_ms"]), ints(table["sent_at_ms"]))
    return result


def _marked(table: pa.Table, verdict: Verdict) -> pa.Table:
    """Rows with only this verdict, all reported."""
    marks = np.full(table.num_rows, verdict, np.int8)
    return _with(_with(table, JUDGED, "verdict", marks), JUDGED, "early", np.zeros(table.num_rows, np.bool_))


def _with(table: pa.Table, schema: pa.Schema, name: str, values: npt.NDArray[np.generic]) -> pa.Table:
    at = schema.get_field_index(name)
    return table.set_column(at, schema.field(at), pa.array(values, schema.field(at).type))
