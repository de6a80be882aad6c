"""Makes a failing history small: cuts steps out, then sets what is left of the world and of the arguments to
the simplest value, as long as the same failure remains. The order of the attempts is fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from tests.sim.config import Config
from tests.sim.history import History, Step

Fails = Callable[[History], bool]

_SIMPLE = {"down_ms": 100, "for_ms": 100, "skip": 0, "count": 100, "skipped_ids": 0, "client": 0, "luck": 0}


def shrink(history: History, fails: Fails, attempts: int = 2_000) -> History:
    """The smallest history found for which `fails` says yes, as it does for the one given."""
    return _Shrinker(fails, attempts).run(history)


class _Shrinker:
    def __init__(self, fails: Fails, attempts: int) -> None:
        self._fails = fails
        self._left = attempts

    def run(self, history: History) -> History:
        while True:
            smaller = self._without_config(history)
            smaller = self._without_steps(smaller)
            smaller = self._with_simpler_steps(smaller)
            if smaller == history or self._left <= 0:
                return smaller
            history = smaller

    def _try(self, history: History) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return self._fails(history)

    def _without_steps(self, history: History) -> History:
        """Delta debugging: cut out halves, quarters, … single steps, with or without the pauses in them."""
        size = max(1, len(history.steps) // 2)
        while size:
            at = 0
            while at < len(history.steps):
                for candidate in _cuts(list(history.steps), at, size):
                    if self._try(history.with_steps(candidate)):
                        history = history.with_steps(candidate)
                        break
                else:
                    at += size
            size //= 2
        return history

    def _without_config(self, history: History) -> History:
        default = asdict(Config())
        for name in history.config.to_json():
            candidate = replace(history, config=replace(history.config, **{name: default[name]}))
            if self._try(candidate):
                history = candidate
        return history

    def _with_simpler_steps(self, history: History) -> History:
        at = 0
        while at < len(history.steps):
            for simpler in _simpler(history.steps[at]):
                steps = list(history.steps)
                steps[at] = simpler
                candidate = history.with_steps(steps)
                if self._try(candidate):
                    history = candidate
            at += 1
        return history


def _cuts(steps: list[Step], at: int, size: int) -> Iterator[list[Step]]:
    yield steps[:at] + steps[at + size :]
    rest = steps[at + size :]
    if rest:
        pause_ms = sum(step.after_ms for step in steps[at : at + size])
        if pause_ms:
            first = replace(rest[0], after_ms=rest[0].after_ms + pause_ms)
            yield [*steps[:at], first, *rest[1:]]


def _simpler(step: Step) -> Iterator[Step]:
    if step.luck:
        yield replace(step, luck=0)
    if step.after_ms:
        yield replace(step, after_ms=0)
        yield replace(step, after_ms=step.after_ms // 2)
    for name, value in step.args.items():
        if name in _SIMPLE and value != _SIMPLE[name]:
            yield _with(step, name, _SIMPLE[name])
        if isinstance(value, list) and len(value) > 1:
            yield _with(step, name, value[:1])
            yield _with(step, name, value[: len(value) // 2])
            yield _with(step, name, value[len(value) // 2 :])
            yield _with(step, name, value[1:])
            yield _with(step, name, value[:-1])


def _with(step: Step, name: str, value: Any) -> Step:
    return replace(step, args={**step.args, name: value})
