"""Runs a history, and reports its outcome."""

from __future__ import annotations

import logging
import math
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.sim.actions import perform
from tests.sim.config import Config
from tests.sim.history import History
from tests.sim.kernel import NS_PER_MS, BrokenSimulation, Violation
from tests.sim.limits import limited
from tests.sim.monitors import monitored
from tests.sim.obligations import Cause
from tests.sim.world import World
from tidegate.index.catalog import background
from tidegate.index.log import landing, records, snapshot
from tidegate.plugin.daemon import held_news, session
from tidegate.plugin.telemetry import lately, survey
from tidegate.plugin.wire import position_pieces


@dataclass
class Outcome:
    """`failure` is None if everything held. `place` is where it was raised, to tell failures apart."""

    failure: str | None = None
    place: str = ""
    details: str = ""
    steps: int = 0
    virtual_ms: int = 0
    published: int = 0
    deliveries: int = 0
    repeats: Counter[Cause] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    forgiven: int = 0
    resets: int = 0

    @property
    def passed(self) -> bool:
        """True without a violation."""
        return self.failure is None


@contextmanager
def _simulated(config: Config) -> Iterator[None]:
    """No log lines, of which damage and failures make many; no real time in the daemon's answers; HELD,
    UNHELD and the records of index logs in parts, turns at index logs, and persists with compactions beside
    them, although a history has few positions.
    """
    logger = logging.getLogger("tidegate")
    level, turn_s, split = logger.level, survey.TURN_S, position_pieces.split_positions
    good_for_s = lately.GOOD_FOR_MAX_S
    interleaved_entries = background._INTERLEAVED_ENTRIES_MIN
    pieces = [(module, module.PIECE_BYTES) for module in (records, snapshot, landing)]
    logger.setLevel(logging.CRITICAL + 1)
    survey.TURN_S, lately.GOOD_FOR_MAX_S = math.inf, 0.0
    for module in (session, held_news):
        setattr(module, "split_positions", partial(split, cut_bytes=config.set_cut_bytes))  # noqa: B010 mypy
    background._INTERLEAVED_ENTRIES_MIN = config.interleaved_entries
    for module, _ in pieces:
        setattr(module, "PIECE_BYTES", config.log_piece_bytes)  # noqa: B010 mypy
    try:
        with limited(config), warnings.catch_warnings():
            # A process killed before a coroutine's first step never awaits its argument.
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        for module, piece_bytes in pieces:
            setattr(module, "PIECE_BYTES", piece_bytes)  # noqa: B010 mypy
        background._INTERLEAVED_ENTRIES_MIN = interleaved_entries
        for module in (session, held_news):
            setattr(module, "split_positions", split)  # noqa: B010 mypy
        survey.TURN_S, lately.GOOD_FOR_MAX_S = turn_s, good_for_s
        logger.setLevel(level)


def play(history: History, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run a history to its end, and until all debts are paid."""
    outcome = Outcome()
    with _simulated(history.config):
        world = World(history.config, history.seed)
        world.kernel.trace = trace
        try:
            with monitored(world):
                for step in history.steps:
                    world.kernel.run_until(world.kernel.now_ns + step.after_ms * NS_PER_MS)
                    perform(world, step)
                world.finish()
        except (Violation, BrokenSimulation, Exception) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
            outcome.place = _place(error)
            outcome.details = "".join(traceback.format_exception(error))
            world.kernel.note(f"!! {outcome.failure}")
        finally:
            world.close()
    outcome.steps = world.kernel.steps
    outcome.virtual_ms = world.elapsed_ms
    outcome.published = len(world.bookkeeper.log.positions)
    outcome.deliveries = sum(each.obligations.deliveries for each in world.subscriptions)
    outcome.repeats = world.repeats
    outcome.skipped = world.skipped
    outcome.forgiven = sum(each.obligations.forgiven for each in world.subscriptions)
    outcome.resets = sum(len(each.obligations.completed) for each in world.subscriptions)
    return outcome


def _place(error: BaseException) -> str:
    """Where it was raised: the file and function, not the line, which moves."""
    while error.__cause__ is not None and isinstance(error, BrokenSimulation):
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = [frame for frame in frames if frame.name != "_require"][-1]
    return f"{type(error).__name__} in {last.filename.rsplit('/', 1)[-1]}:{last.name}"
