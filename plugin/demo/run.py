"""One run of the demo: its options, its progress, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.plugin.demo.audit import Audit, Outage
from tidegate.plugin.demo.recorder import Recorder, now_us
from tidegate.plugin.demo.watch import IndexState, Watch
from tidegate.plugin.demo.workload import Workload


@dataclass(frozen=True)
class Options:
    """The user's choices; directories are absolute."""

    messages: int
    seconds: float
    far: int
    tracker: str
    pulsar_home: Path
    jar: Path | None
    out_dir: Path
    keep: bool = False


@dataclass
class Progress:
    """The run's progress, for a view. Only the run writes it, one field at a time."""

    options: Options
    phase: str = "starting"
    start_us: int | None = None
    broker_up: bool = False
    daemon_up: bool = False
    clients_up: bool = False
    events: list[tuple[float, str]] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)
    recorder: Recorder | None = None
    watch: Watch | None = None
    clock_us: Callable[[], int] = now_us
    began_us: int = 0

    def __post_init__(self) -> None:
        self.began_us = self.clock_us()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first message could be sent; 0 before."""
        return 0.0 if self.start_us is None else (self.clock_us() - self.start_us) / 1e6

    @property
    def setup_s(self) -> float:
        """The seconds of the set-up, so far or in all."""
        until_us = self.clock_us() if self.start_us is None else self.start_us
        return (until_us - self.began_us) / 1e6


@dataclass(frozen=True)
class Outcome:
    """A finished run. ``far_held``: messages due tomorrow that the broker still counts as delayed."""

    options: Options
    workload: Workload
    start_us: int
    audit: Audit
    outages: list[Outage]
    far_sent: int
    far_held: int
    history: list[IndexState]
    recorder: Recorder
    setup_s: float
    total_s: float

    @property
    def passed(self) -> bool:
        """True if nothing was early or lost, everything was sent, and tomorrow's messages are still held."""
        verdict = self.audit
        return not (verdict.early or verdict.lost or verdict.unconfirmed or self.far_held < self.far_sent)
