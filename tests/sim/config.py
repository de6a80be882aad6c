"""A history's choices about its world: sizes, latencies, settings. All plain numbers, for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tests.sim.broker import BrokerOptions
from tests.sim.cursor import CursorOptions
from tests.sim.daemon import DaemonOptions
from tests.sim.dispatcher import DispatcherOptions
from tests.sim.lateness import Patience
from tests.sim.objects import URL
from tests.sim.shim import ShimOptions
from tests.sim.wire import WireOptions
from tidegate.index.log.log_options import LogOptions
from tidegate.index.options import IndexOptions
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER
from tidegate.plugin.wire.payload_reader import CLAIMS_MAX

_NS_PER_US = 1_000
_US_PER_MS = 1_000
_PATIENCE_MS = 2_000
_LOG_PATIENCE_MS = 8_000


@dataclass(frozen=True)
class Config:
    """Small by default, so that a few dozen messages reach every part of the index.

    shared_daemon: both brokers use one daemon, on one machine; else each has its own.
    ack_after_ms: how long clients take to acknowledge at most; -1: only on command.
    small_limits: the product does with a few what it does with millions (see `limits`).
    early_tracker_us: how long after a consumer has come to a new owner the shim has a tracker made, at most;
        -1: not before a delayed message is read.
    reset_clears: Pulsar has the tracker forget everything before it resets the cursor (apache/pulsar#26420).
    rules_ms: how long a new tracker's namespace takes to tell its rules.
    """

    shared_daemon: bool = False
    subscriptions: int = 1
    clients: int = 2
    permits: int = 10
    ack_after_ms: int = -1
    first_ledger_id: int = 10
    session_timeout_ms: int = 1_000
    # the shim
    horizon_ms: int = 2_000
    credit: int = 100
    near_max: int = 1_000
    pending_max: int = 10_000
    ack_poll_ms: int = 50
    daemon_wait_ms: int = 10_000
    claims_max: int = CLAIMS_MAX
    # Pulsar
    ranges_max: int = 10_000
    cursor_flush_ms: int = 60_000
    cursor_io_us: int = 2_000
    read_batch: int = 100
    read_io_us: int = 1_000
    network_us: int = 1_000
    early_tracker_us: int = -1
    reset_clears: bool = False
    rules_ms: int = 0
    # index logs
    index_log: bool = False
    log_objects: bool = False
    log_tail_entries: int = 512
    log_io_us: int = 2_000
    log_read_bytes: int = 1 << 20
    log_piece_bytes: int = 1 << 20
    log_interval_ms: int = 50
    log_tail_bytes: int = 2 << 20
    log_queue_bytes: int = 16 << 20
    log_record_bytes: int = 1 << 20
    log_inline_bytes: int = 4 << 20
    log_blocks_ledger_bytes: int = 64 << 20
    log_tail_snapshots: int = 2
    logs_at_once: int = 32
    long_logs_at_once: int = 4
    long_log_bytes: int = 1 << 20
    log_beginnings: int = 4
    # the socket
    socket_capacity: int = 200_000
    socket_latency_us: int = 100
    piece_bytes: int = 0
    set_cut_bytes: int = 1 << 20
    # the index
    slice_width_ms: int = 1_000
    slice_width_auto: bool = False
    staging_budget_bytes: int = 480
    carry_ms: int = 100
    persist_age_ms: int = 2_000
    journal_budget_bytes: int = 2_000
    journal_records: int = 32_768
    block_entries: int = 4
    chunk_entries: int = 4
    merge_runs: int = 2
    runs_max: int = 32
    compaction_entries: int = 1 << 22
    interleaved_entries: int = 1
    drop_entries: int = 8
    prefetch_ms: int = 1_000
    pop_scan_entries: int = 64
    write_piece_bytes: int = 200
    retry_ms: int = 300
    quarantine_bytes: int = 1 << 20
    small_limits: bool = False
    # the daemon
    heartbeat_ms: int = 2_000
    commit_interval_us: int = 2_000
    commit_entries: int = 100
    maintain_interval_ms: int = 100
    storage_retry_ms: int = 300
    credit_max: int = 1_000_000
    write_buffer_bytes: int = 65_536
    staging_bytes_max: int = 64 * 1024 * 1024
    loop_lag_us: int = 100
    job_delay_us: int = 500
    write_us: int = 300
    daemon_start_ms: int = 100

    def broker_options(self) -> BrokerOptions:
        """The settings of a broker."""
        return BrokerOptions(
            ShimOptions(
                self.horizon_ms,
                self.credit,
                self.near_max,
                self.pending_max,
                self.ack_poll_ms,
                self.daemon_wait_ms,
                self.claims_max,
            ),
            CursorOptions(self.ranges_max, self.cursor_flush_ms, self.cursor_io_us * _NS_PER_US),
            DispatcherOptions(
                self.read_batch,
                self.read_io_us * _NS_PER_US,
                self.network_us * _NS_PER_US,
                self.early_tracker_us * _NS_PER_US if self.early_tracker_us >= 0 else -1,
            ),
            WireOptions(self.socket_capacity, self.socket_latency_us * _NS_PER_US, self.piece_bytes),
            (URL if self.log_objects else BOOKKEEPER) if self.index_log else "",
            self.patience(),
            self.reset_clears,
            self.rules_ms * _US_PER_MS * _NS_PER_US,
        )

    def patience(self) -> Patience:
        """How late a message may be: several times the sum of all latencies below."""
        in_socket_us = self._in_socket_us(500)
        reading_us = 2 * self.read_io_us // self.read_batch
        turn_us = (
            2 * (self.socket_latency_us + in_socket_us)
            + (self.commit_interval_us + 2 * self.job_delay_us + 10 * self.write_us)
            + (10 * self.loop_lag_us + 2 * self.read_io_us)
        )
        credit = min(self.credit, self.credit_max)
        message_us = (
            (self._in_socket_us(200) + turn_us // credit + turn_us // self.pending_max)
            + (reading_us + self.write_us + self.loop_lag_us)
        ) * self.subscriptions
        upkeep_ms = 3 * self.maintain_interval_ms + 2 * (self.storage_retry_ms + self.retry_ms)
        base_us = 2 * turn_us + (_PATIENCE_MS + upkeep_ms) * _US_PER_MS
        if self.index_log:
            # Its bytes use the same socket, and blocks may have to be fetched first.
            base_us += _LOG_PATIENCE_MS * _US_PER_MS + 4 * self._in_socket_us(10_000)
            message_us += self.log_io_us + self._in_socket_us(2_000)
        behind = min(credit, self.near_max)
        held_ns = (self.horizon_ms + 2 * self.ack_poll_ms) * _US_PER_MS * _NS_PER_US
        return Patience(base_us * _NS_PER_US, message_us * _NS_PER_US, behind, held_ns)

    def _in_socket_us(self, size_bytes: int) -> int:
        """How long so many bytes take through the socket."""
        pieces_us = 0 if self.piece_bytes == 0 else 100 * size_bytes // self.piece_bytes
        return self.socket_latency_us * size_bytes // self.socket_capacity + pieces_us

    def daemon_options(self) -> DaemonOptions:
        """The settings of a daemon."""
        index = IndexOptions(
            slice_width_ms=self.slice_width_ms,
            slice_width_auto=self.slice_width_auto,
            staging_budget_bytes=self.staging_budget_bytes,
            carry_ms=self.carry_ms,
            persist_age_ms=self.persist_age_ms,
            journal_budget_bytes=self.journal_budget_bytes,
            journal_records=self.journal_records,
            block_entries=self.block_entries,
            chunk_entries=self.chunk_entries,
            merge_runs=self.merge_runs,
            runs_max=self.runs_max,
            compaction_entries=self.compaction_entries,
            drop_entries=self.drop_entries,
            prefetch_ms=self.prefetch_ms,
            pop_scan_entries=self.pop_scan_entries,
            write_piece_bytes=self.write_piece_bytes,
            retry_ms=self.retry_ms,
            quarantine_budget_bytes=self.quarantine_bytes,
        )
        settings: dict[str, Any] = {
            "heartbeat_ms": self.heartbeat_ms,
            "commit_interval_ms": self.commit_interval_us / 1_000,
            "commit_entries": self.commit_entries,
            "maintain_interval_ms": self.maintain_interval_ms,
            "storage_retry_ms": self.storage_retry_ms,
            "credit_max": self.credit_max,
            "write_buffer_bytes": self.write_buffer_bytes,
            "staging_bytes": self.staging_budget_bytes,
            "staging_bytes_max": self.staging_bytes_max,
            "prefetch_ms": self.prefetch_ms,
            "slice_width_ms": self.slice_width_ms,
            "slice_width_auto": self.slice_width_auto,
        }
        log = LogOptions(
            self.log_interval_ms,
            self.log_tail_bytes,
            queue_bytes=self.log_queue_bytes,
            record_bytes=self.log_record_bytes,
            inline_bytes=self.log_inline_bytes,
            blocks_ledger_bytes=self.log_blocks_ledger_bytes,
            tail_snapshots=self.log_tail_snapshots,
        )
        return DaemonOptions(
            index,
            log,
            settings,
            self.log_tail_entries,
            self.loop_lag_us * _NS_PER_US,
            self.job_delay_us * _NS_PER_US,
            self.daemon_start_ms * 1_000_000,
        )

    def to_json(self) -> dict[str, Any]:
        """The differences from the defaults."""
        default = asdict(Config())
        return {name: value for name, value in asdict(self).items() if value != default[name]}
