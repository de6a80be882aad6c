"""A history: a world's configuration and its steps, as JSON.

Each step has the true time before it, its action and arguments, and the seed of all the luck (latencies,
pieces, orders) from there to the next step. So a history replays to the byte, and one with steps cut out is a
history again. Format: docs/simulation.md; the shim's tests read it, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.sim.config import Config

FORMAT = 1


@dataclass(frozen=True)
class Step:
    """`do` is the name of an action (see `actions`), `args` its arguments."""

    after_ms: int
    do: str
    args: dict[str, Any]
    luck: int

    def to_json(self) -> dict[str, Any]:
        return {"after_ms": self.after_ms, "do": self.do, **self.args, "luck": self.luck}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Step:
        args = {name: each for name, each in value.items() if name not in ("after_ms", "do", "luck")}
        return cls(value["after_ms"], value["do"], args, value.get("luck", 0))


@dataclass(frozen=True)
class History:
    """`about`: the reason to keep the history."""

    config: Config
    steps: tuple[Step, ...]
    seed: int = 0
    about: str = ""

    def with_steps(self, steps: list[Step]) -> History:
        """The same world with other steps."""
        return replace(self, steps=tuple(steps))

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"format": FORMAT, "about": self.about, "seed": self.seed}
        return {**value, "config": self.config.to_json(), "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> History:
        if value.get("format") != FORMAT:
            raise ValueError(f"a history of format {value.get('format')}, this reads {FORMAT}")
        return cls(
            Config(**value["config"]),
            tuple(Step.from_json(step) for step in value["steps"]),
            value.get("seed", 0),
            value.get("about", ""),
        )

    def save(self, path: Path) -> None:
        """Write it, a step a line."""
        value = self.to_json()
        steps = value.pop("steps")
        head = json.dumps(value, indent=1)[:-2]
        lines = ",\n".join("  " + json.dumps(step) for step in steps)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{head},\n "steps": [\n{lines}\n ]\n}}\n', encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> History:
        """Read `save`'s file."""
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
