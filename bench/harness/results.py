"""A bench's result as a file: its measurements, command and machine.

JSON of ``Result``. Samples stay samples: report and plots reduce them. Fields are only added, so older files
stay readable.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from bench.harness.errors import BenchError

RESULTS = Path(__file__).parents[1] / "results"
EVERYTHING_ELSE = "everything else"
"""Title of the metric that is what no other of its scenario names; it comes last."""


class Metric(BaseModel):
    """One figure of each peer in one scenario: ``samples[peer]`` has one number a round."""

    model_config = ConfigDict(extra="forbid")

    scenario: str
    title: str
    unit: str
    better: Literal["lower", "higher"] = "lower"
    target: float | None = Field(
        default=None, description="what the project asks of itself; not of the peers"
    )
    headline: bool = Field(default=True, description="shown in the tables of the docs")
    samples: dict[str, list[float]] = Field(default_factory=dict)

    def add(self, peer: str, value: float) -> None:
        """Append one round's figure of a peer."""
        self.samples.setdefault(peer, []).append(value)


class Series(BaseModel):
    """A curve for the plots: the quantile function of one peer's values in one scenario."""

    model_config = ConfigDict(extra="forbid")

    scenario: str
    peer: str
    unit: str
    quantiles: list[float]


class Frame(BaseModel):
    """A box of a flame graph: its own time and that of all above, in the graph's unit."""

    model_config = ConfigDict(extra="forbid")

    name: str
    value: float
    children: list[Frame] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        written: dict[str, object] = handler(self)
        return {name: value for name, value in written.items() if value != []}


class Flame(BaseModel):
    """A flame graph of one peer in one scenario: a root for each process, side by side."""

    model_config = ConfigDict(extra="forbid")

    scenario: str
    peer: str
    unit: str
    roots: list[Frame]


class Machine(BaseModel):
    """The machine of a run; no field identifies it.

    avx512: if the processor has AVX-512, which NumPy's sort uses; None, and not written, in older results.
    """

    cpu: str
    avx512: bool | None = None
    cores: int
    memory_gib: float
    system: str
    load_1min_at_start: float

    @model_serializer(mode="wrap")
    def _without_what_is_not_known(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        written: dict[str, object] = handler(self)
        return {name: value for name, value in written.items() if value is not None}


class Result(BaseModel):
    """One run of one bench."""

    bench: str
    summary: str
    command: str
    quick: bool
    runs: int
    started_at: str
    duration_s: float
    revision: str
    machine: Machine
    versions: dict[str, str]
    parameters: dict[str, str | int | float]
    ours: str = "tidegate"
    peers: list[str] = Field(description="in the order of the columns, ours first")
    metrics: list[Metric]
    series: list[Series] = Field(default_factory=list)
    flames: list[Flame] = Field(default_factory=list, description="not written if there are none")
    notes: list[str] = Field(default_factory=list)
    axis: str = Field(default="", description="of a plot in which peers are points on an axis, not bars")
    positions: dict[str, float] = Field(default_factory=dict, description="where on it each peer is")


def save(result: Result, path: Path) -> None:
    """Write the result as JSON, creating the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(result), encoding="utf-8")


def text_of(result: Result) -> str:
    """A line for each field, metric and curve: small, and with readable diffs."""
    fields = []
    for name, value in result.model_dump(mode="json").items():
        if name == "flames" and not value:
            continue
        if name in ("metrics", "series", "flames") and value:
            written = "[\n" + ",\n".join(f"  {_json(each)}" for each in value) + "\n ]"
        else:
            written = _json(value)
        fields.append(f" {_json(name)}: {written}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def load(path: Path) -> Result:
    """Read a result; raises BenchError for any other file."""
    try:
        return Result.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise BenchError(f"{path} is not a bench result: {error}") from error


def load_all(folder: Path = RESULTS) -> list[Result]:
    """Every result of a folder, in the order of the file names."""
    return [load(path) for path in sorted(folder.glob("*.json"))]
