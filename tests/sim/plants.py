"""Known bugs, planted: they show that the simulator finds its prey.

Each is there for the time of a `with`, in place of a method of the product (or of the model, for a broker's
fault). Those with a commit are faults of this project, repaired by that commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.sim.planted_broker import (
    answered_before_it_is_stored,
    cancelled_and_held,
    cancelled_before_it_is_stored,
    cancelled_too_late,
    clock_ahead,
    credit_after_close,
    daemon_alone_is_told,
    epoch_of_the_clock,
    every_owner_is_the_first,
    first_owners_wait_for_any_daemon,
    former_seal_not_told,
    former_time_holds,
    given_back_in_eighths,
    left_as_loaded,
    loss_of_former_history,
    lost_half_the_time,
    lost_seal_is_a_resets,
    moves_taken_for_resets,
    never_full,
    overrides_forgotten,
    pause_not_stored,
    read_leaves_while_paused,
    resets_taken_for_moves,
    rules_not_awaited,
    sealed_before_the_look,
)
from tests.sim.planted_daemon import (
    acknowledgements_not_put_back,
    applied_but_failed,
    believed_over_a_reset,
    carry_lost,
    claims_not_compared,
    commit_unsynced,
    credit_ignored,
    durable_too_early,
    former_life,
    kept_aside_without_a_bound,
    moved_and_in_flight,
    not_told_unheld,
    pieces_not_counted,
    rest_not_read,
    rewind_forgotten,
)
from tests.sim.planted_logs import (
    absent_blocks_left_out,
    acknowledgements_gone,
    appended_to_for_ever,
    chain_must_be_readable,
    end_of_another_append,
    forgotten_beside_a_snapshot,
    gives_way_to_any_log,
    landed_without_a_mark,
    last_object_not_read,
    looked_for_elsewhere,
    nobody_is_asked,
    pointer_not_compared,
    waiting_counts,
    waits_without_a_bound,
    written_for_ever,
)
from tests.sim.planted_upkeep import (
    brokers_not_known,
    journal_stays,
    log_in_no_grammar,
    log_never_begun,
    nothing_is_merged,
    put_in_but_for_the_first,
    reads_on,
    repaired_for_ever,
)


@dataclass(frozen=True)
class Plant:
    """A bug to plant, and where to look for it: the kinds of faults, and settings of the world.

    says: the words of the check that meets it, so that a broken plant does not pass for found. or_says: those
    of another check that may meet it first. commit: the repair in this project, "" for a bug that it never
    had.
    """

    name: str
    plant: Callable[[], AbstractContextManager[None]]
    says: str
    faults: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    commit: str = ""
    or_says: tuple[str, ...] = ()

    def is_met_by(self, failure: str) -> bool:
        """True if it has made a history fail."""
        return any(says in failure for says in (self.says, *self.or_says))


_LOG = {"index_log": True, "shared_daemon": False, "daemon_wait_ms": 10_000}
"""Index logs, and a daemon for each broker, so that they are read."""
_MUCH_IN_BLOCKS = {
    "journal_budget_bytes": 500,
    "persist_age_ms": 200,
    "staging_budget_bytes": 240,
    "slice_width_ms": 100,
    "daemon_start_ms": 1,
}
"""Hardly anything stays in the journal."""
_OFTEN = {"persist_age_ms": 200}
_MANY_RUNS = {**_OFTEN, "slice_width_ms": 3_600_000, "merge_runs": 2, "staging_budget_bytes": 240}
_MUCH_CREDIT = {"credit_max": 1_000_000}
"""Due entries leave at once, so that the named check meets the plant first."""

_QUICK = {
    **{"socket_latency_us": 200, "socket_capacity": 200_000, "piece_bytes": 0, "read_io_us": 100},
    **{"write_us": 10, "job_delay_us": 10, "loop_lag_us": 10, "storage_retry_ms": 10, "retry_ms": 10},
    **{"credit": 20_000, "near_max": 1_000, "pending_max": 1_000_000, "permits": 50, "ack_after_ms": 20},
    **{"maintain_interval_ms": 100, "index_log": False, **_MUCH_CREDIT},
}
"""Nothing is slow, so that little lateness is allowed."""

_UNHEARD = {
    **{"shared_daemon": True, "index_log": False, "claims_max": 64, "ranges_max": 1, "subscriptions": 1},
    **{"daemon_wait_ms": 10_000, "ack_after_ms": 20, "permits": 50, "clients": 2, "near_max": 1_000},
}
"""The daemon alone knows the last acknowledgements, and the shim waits for it."""

PLANTS = (
    Plant(
        "acknowledgements are believed over a reset",
        believed_over_a_reset,
        "is acknowledged, but it must be",
        ("seek",),
        {},
        "8d1f268",
    ),
    Plant(
        "what a reset's own record has is believed",
        left_as_loaded,
        "lost: ",
        ("seek", "crash"),
        {},
        "d57358d",
    ),
    Plant(
        "a tracker puts a seal over what a reset's own record has",
        sealed_before_the_look,
        "lost: ",
        ("undone",),
        {"early_tracker_us": 100, "cursor_io_us": 20_000},
        "122668c",
    ),
    Plant(
        "a lost seal is always taken for a reset",
        lost_seal_is_a_resets,
        "is reset once more, which nobody had reset",
        ("forward",),
        {},
        "6b0199f",
    ),
    Plant(
        "the epoch is a wall clock",
        epoch_of_the_clock,
        "at the end",
        ("clock", "move"),
        {"shared_daemon": True},
        "8d1f268",
    ),
    Plant(
        "a killed broker's last words are dropped",
        rest_not_read,
        "is unknown to it, but it must be",
        ("crash", "consumer"),
        {
            "socket_latency_us": 100_000,
            "session_timeout_ms": 300,
            "ack_after_ms": 20,
            "piece_bytes": 7,
            **_MUCH_CREDIT,
        },
        "e5fa191",
        or_says=("is held, but it must be acknowledged",),  # the last words may have an ACK as well as an ADD
    ),
    Plant(
        "a failed persist that was applied counts later",
        applied_but_failed,
        "is held, but it must be unknown to it",
        ("disk", "crash"),
        {
            "ack_after_ms": 20,
            "persist_age_ms": 50,
            "maintain_interval_ms": 10,
            "carry_ms": 0,
            "slice_width_ms": 100,
            "slice_width_auto": False,
            "staging_budget_bytes": 240,
            "write_piece_bytes": 524_288,
            "cursor_io_us": 200,
            "cursor_flush_ms": 1_000,
            "permits": 50,
            "daemon_start_ms": 1,
            **_MUCH_CREDIT,
        },
        "fea1ddf",
        or_says=("has stored a block that no slice names",),
    ),
    Plant(
        "acknowledgements of a failed persist are not put back",
        acknowledgements_not_put_back,
        "is unknown to it, but it must be acknowledged",
        ("persist",),
        {},
        # The bitmap again has positions that a mark-delete or a seal had taken.
        or_says=("is acknowledged, but it must be unknown to it", "up to the mark-delete position"),
    ),
    Plant(
        "credit after CLOSE",
        credit_after_close,
        "ERROR on a stream that has ended",
        ("move",),
        {},
        "f029f7f",
    ),
    Plant(
        "DURABLE before the write",
        durable_too_early,
        "is unknown to it, but it must be",
        ("power",),
        {"write_us": 10_000},
    ),
    Plant("a commit that is not synced", commit_unsynced, "but it must be", ("power",)),
    Plant("credit is ignored", credit_ignored, "more DUE entries than there is credit", ("crash",)),
    Plant(
        "what was handed out is not handed out again after OPEN",
        rewind_forgotten,
        "is held and earlier",
        ("crash",),
        _MUCH_CREDIT,
        or_says=("again, or of what is in flight",),  # in flight for good
    ),
    Plant(
        "what a persist leaves staged is lost", carry_lost, "is held and earlier", ("crash",), _MUCH_CREDIT
    ),
    Plant(
        "credit comes back in eighths",
        given_back_in_eighths,
        "lost: ",
        ("crash",),
        {"credit": 100, "credit_max": 7},
        "3404f5f",
    ),
    Plant(
        "a wish to read is lost",
        partial(lost_half_the_time, "read_more"),
        "late: ",
        ("move",),
        _QUICK,
        or_says=("lost: ",),  # nothing else has it sent
    ),
    Plant(
        "a wake-up is lost",
        partial(lost_half_the_time, "_on_wake"),
        "late: ",
        ("move",),
        _QUICK,
        or_says=("lost: ",),
    ),
    Plant("the shim's clock is ahead", clock_ahead, "ms early", ("clock",)),
    Plant(
        "the pointer of an index log is not compared",
        pointer_not_compared,
        "of another daemon was not read",
        ("move",),
        _LOG,
    ),
    Plant(
        "what waits for an index log counts as being in it",
        waiting_counts,
        "is unknown to it, but it must be",
        ("move",),
        _LOG,
    ),
    Plant(
        "what is written beside a snapshot is not in the log",
        forgotten_beside_a_snapshot,
        "is unknown to it, but it must be",
        ("move",),
        _LOG,
        # An ACK may be written beside it as an ADD may.
        or_says=(
            "is held, but it must be acknowledged",
            "held and acknowledged at once",
            "is said to be of another history, and there is one",
        ),
    ),
    Plant(
        "what waits for an index log has no bound",
        waits_without_a_bound,
        "bytes wait for an index log",
        ("move",),
        {**_LOG, "log_queue_bytes": 100, "log_interval_ms": 500, "log_io_us": 50_000},
    ),
    Plant(
        "what is damaged is kept without a bound",
        kept_aside_without_a_bound,
        "damaged bytes, 50 are allowed",
        ("damage", "crash"),
        {"quarantine_bytes": 50},
    ),
    Plant(
        "the shim reads on though it is full",
        never_full,
        "entries wait for DURABLE",
        ("move",),
        {"pending_max": 5, "read_batch": 3, "socket_latency_us": 100_000, "commit_interval_us": 50_000},
    ),
    Plant("what was let go of is not told", not_told_unheld, "lost: ", ("rebuild",)),
    Plant(
        "what a crash leaves of a restoration stays on the disk",
        landed_without_a_mark,
        "has stored what is of no subscription",
        ("log", "crash"),
        {**_LOG, **_MUCH_IN_BLOCKS, "log_piece_bytes": 50, "log_read_bytes": 1, "session_timeout_ms": 1_000},
        "3d79719",
        or_says=("held but nowhere to be found",),
    ),
    Plant(
        "a chain that cannot be read ends the connection",
        chain_must_be_readable,
        "StorageError('too many files are open')",
        ("reads", "crash"),
        _LOG,
        "3d79719",
    ),
    Plant(
        "an append that is given up ends another one",
        end_of_another_append,
        "InvalidStateError('invalid state')",
        ("objects", "move"),
        {**_LOG, "log_objects": True, "log_piece_bytes": 50, "log_io_us": 50_000},
        "6060a35",
    ),
    Plant(
        "the last object of an index log is not read",
        last_object_not_read,
        "but it must be",
        ("objects", "move"),
        {**_LOG, "log_objects": True},
        # A record of blocks, or a snapshot's end.
        or_says=("loses blocks: ledger", "cannot read an index log that nobody has damaged"),
    ),
    Plant(
        "a log that is behind takes what was acknowledged since",
        acknowledgements_gone,
        "but it must be acknowledged",
        ("behind",),
        _LOG,
        "0eecee7",
        # Nor does it accept a later owner's held ones.
        or_says=("is held, but it must be unknown to it", "is acknowledged, but it must be"),
    ),
    Plant(
        "an index log is looked for where it is not",
        looked_for_elsewhere,
        "but it is where it was made",
        ("objects", "move"),
        {**_LOG, "log_objects": True},
        "f074aeb",
    ),
    Plant(
        "a new life has the former one's index",
        former_life,
        "but it must be unknown to it",
        ("subscription",),
        {},
        or_says=("an index is said to be of another history, and there is one",),
    ),
    Plant(
        "the claims of owners are not compared",
        claims_not_compared,
        "but it must be unknown to it",
        ("backup", "crash"),
    ),
    Plant("a pause is not stored", pause_not_stored, "leaves while it is paused", ("pause",)),
    Plant(
        "what is read when it is due leaves while paused",
        read_leaves_while_paused,
        "leaves while it is paused",
        ("pause",),
    ),
    Plant("moved times are not read by a new owner", overrides_forgotten, "ms early", ("change", "move")),
    Plant(
        "a move is answered before it is stored",
        answered_before_it_is_stored,
        "ms early",
        ("change", "crash"),
    ),
    Plant("a move is told to the daemon only", daemon_alone_is_told, "ms early", ("change",)),
    Plant(
        "a moved message leaves at its own time",
        former_time_holds,
        "ms early",
        ("change",),
        or_says=("late: ",),  # moved to an earlier time
    ),
    Plant(
        "what is cancelled stays in the index",
        cancelled_and_held,
        "is held, but it must be",
        ("change", "wire"),
    ),
    Plant(
        "a cancellation is answered before it is stored",
        cancelled_before_it_is_stored,
        "comes though it is cancelled",
        ("change", "crash"),
        {
            **{"shared_daemon": False, "index_log": False, "ack_after_ms": 20, "cursor_flush_ms": 60_000},
            **{"session_timeout_ms": 100, "subscriptions": 1, "permits": 50},
        },
    ),
    Plant(
        "what a consumer has is cancelled",
        cancelled_too_late,
        "is cancelled though a consumer has it",
        ("change",),
    ),
    Plant(
        "a first owner waits for an absent daemon",
        first_owners_wait_for_any_daemon,
        "is new, and its messages wait for a daemon",
        ("first",),
        {"daemon_wait_ms": 10_000, "rules_ms": 0},
        commit="dd74860a",
    ),
    Plant(
        "every owner decides as the first one",
        every_owner_is_the_first,
        "comes again though the daemon knew",
        ("unheard",),
        _UNHEARD,
    ),
    Plant(
        "messages leave before their namespace's rules are known",
        rules_not_awaited,
        "before the rules are known",
        ("consumer",),
        {"rules_ms": 1_000},
        commit="dd74860a",
    ),
    Plant(
        "a skip is taken for a reset",
        moves_taken_for_resets,
        "comes again though the daemon",
        ("unheard",),
        _UNHEARD,
    ),
    Plant(
        "a reset is taken for a skip",
        resets_taken_for_moves,
        "is deleted in the cursor though it is owed",
        ("unheard",),
        {**_UNHEARD, "reset_clears": False},
    ),
    Plant(
        "the daemon forgets what it knows under a former seal",
        former_seal_not_told,
        "comes again though the daemon knew",
        ("unheard",),
        {**_UNHEARD, "heartbeat_ms": 500},
    ),
    Plant(
        "what was acknowledged before Pulsar was put back is deleted",
        loss_of_former_history,
        "is deleted in the cursor though it is owed",
        ("backup", "consumer"),
        {},
        or_says=("DUE says", "which the topic does not have"),
    ),
    Plant("the journal only grows", journal_stays, "records of its journal", ("consumer",), _OFTEN),
    Plant("nothing is merged", nothing_is_merged, "crowded for more than", ("consumer",), _MANY_RUNS),
    Plant("an index log is never begun", log_never_begun, "out of its index log", ("consumer",), _LOG),
    Plant(
        "nobody can read an index log",
        log_in_no_grammar,
        "cannot read an index log that nobody has damaged",
        ("move",),
        _LOG,
    ),
    Plant(
        "a rebuild leaves an entry out",
        put_in_but_for_the_first,
        "does not hold them",
        ("rebuild",),
    ),
    Plant(
        "a connection is read on though its peer is full",
        reads_on,
        "takes no answers",
        ("consumer",),
        {"write_buffer_bytes": 100, "socket_capacity": 64},
    ),
    Plant(
        "what was repaired is repaired again",
        repaired_for_ever,
        "repairs nothing of",
        ("persist",),
        _OFTEN,
        or_says=("crowded for more than",),  # it gives nothing else a turn
    ),
    Plant(
        "a log names no blocks that are still to be brought",
        absent_blocks_left_out,
        "loses blocks: ",
        ("absent",),
        {
            **{
                **_LOG,
                "log_inline_bytes": 0,
                "log_piece_bytes": 50,
                "log_record_bytes": 50,
                "log_read_bytes": 1,
            },
            **{
                "log_io_us": 4_000,
                "staging_budget_bytes": 240,
                "persist_age_ms": 200,
                "socket_latency_us": 200,
            },
        },
        or_says=("reads its own log in ledger", "held but nowhere to be found"),
    ),
    Plant(
        "a log is written on that another owner has",
        written_for_ever,
        "writes an index log on that it has given up",
        ("freeze", "move"),
        _LOG,
    ),
    Plant(
        "every broker passes for gone",
        nobody_is_asked,
        "asks nothing of a broker that is there",
        ("move",),
        _LOG,
    ),
    Plant(
        "a broker has two connections",
        brokers_not_known,
        "more than one connection of a broker",
        ("crash", "wire", "freeze"),
    ),
    Plant(
        "a log continues after a failed append",
        appended_to_for_ever,
        "out of its index log",
        ("append",),
        _LOG,
    ),
    Plant(
        "whole local data gives way to a log of another history",
        gives_way_to_any_log,
        "an index gives way to the log in",
        ("behind",),
        {**_LOG, "claims_max": 2},
    ),
    Plant(
        "a crash leaves blocks that no slice names",
        pieces_not_counted,
        "has stored a block that no slice names",
        ("crash",),
        _MUCH_IN_BLOCKS,
    ),
    Plant(
        "what was in flight and is moved stays in flight",
        moved_and_in_flight,
        "lost: ",
        ("loss",),
    ),
)
