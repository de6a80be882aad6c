"""The request of a command and the events of its job: JSON over pipes, one document a line.

Invariant: no request has a secret in it, only paths of files with secrets.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tidegate.pipeline.errors import PipelineError

LINE_MAX_BYTES = 64 * 1024 * 1024

LOCAL = "local[*]"
"""Spark's name for this machine."""

HERE, SPARK = "python", "spark"
"""The engine that did the work, as a result names it: the job's own process, or Spark."""


class SparkSettings(BaseModel):
    """Spark's place and settings.

    master: in Spark's notation; ``local[*]`` is this machine. asked_for: the user has chosen place or
    settings, so wants Spark even for a small job. conf: Spark's settings. package: ``tidegate
    spark-package``'s archive for workers elsewhere. files: shipped to every worker.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str = LOCAL
    asked_for: bool = False
    conf: dict[str, str] = Field(default_factory=dict)
    package: str | None = None
    files: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """True if everything runs in one JVM on this machine."""
        return self.master == "local" or self.master.startswith("local[")


class Request(BaseModel):
    """One run of one command. ``options`` are the command's own, as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str
    options: dict[str, Any]
    spark: SparkSettings = Field(default_factory=SparkSettings)


class StageEvent(BaseModel):
    """The progress of a stage. ``entries``: read or shuffled so far, None if Spark does not count them."""

    event: Literal["stage"] = "stage"
    stage: int
    name: str
    done: int
    tasks: int
    entries: int | None = None


class NoteEvent(BaseModel):
    """A line for the user, such as the next step."""

    event: Literal["note"] = "note"
    text: str


class ResultEvent(BaseModel):
    """The end of a successful job. ``exit_code`` is the command's."""

    event: Literal["result"] = "result"
    result: dict[str, Any]
    exit_code: int = 0


class ErrorEvent(BaseModel):
    """The end of a failed job. ``expected``: the message is complete; otherwise the log has more."""

    event: Literal["error"] = "error"
    message: str
    exit_code: int
    expected: bool


Event = Annotated[StageEvent | NoteEvent | ResultEvent | ErrorEvent, Field(discriminator="event")]
_EVENT: TypeAdapter[StageEvent | NoteEvent | ResultEvent | ErrorEvent] = TypeAdapter(Event)


def parse_event(line: bytes) -> StageEvent | NoteEvent | ResultEvent | ErrorEvent:
    """An event from its line. Raises ``PipelineError``."""
    try:
        return _EVENT.validate_python(json.loads(line))
    except ValueError as error:
        raise PipelineError(f"the job sends an event unknown to this version: {error}") from error
