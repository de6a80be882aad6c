"""The options of a tuning, in the form that travels to the job."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from tidegate.pipeline.errors import OptionError
from tidegate.plugin.shared.durations import milliseconds

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%:([^,-]+)(?:-([^,-]+))?")


class Delays(BaseModel):
    """A part of the traffic: ``share`` of it has delays spread evenly between these two."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: float
    least_ms: int
    most_ms: int


class Topic(BaseModel):
    """A topic with messages for a trace."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: dict[str, str]


class TuneOptions(BaseModel):
    """A tuning.

    trace: a file, directory, pattern or URL of Parquet or CSV; None if it is a topic. scale: a factor for the
    traffic. delays: another mix of delays than the trace's, None for its own. staging_bytes: the daemon's
    setting. report: directory of the report, None for none. dry_run: only examine the trace.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace: str | None = None
    topic: Topic | None = None
    scale: float = 1.0
    delays: tuple[Delays, ...] = ()
    staging_bytes: int = 32 * 1024 * 1024
    report: str | None = None
    dry_run: bool = False


def parse_delays(text: str) -> tuple[Delays, ...]:
    """From ``80%:30m,20%:1h-24h``. Raises ``OptionError``."""
    found = []
    for part in text.split(","):
        match = _SHARE.fullmatch(part.strip())
        try:
            if match is None:
                raise ValueError("write it as 80%:30m,20%:1h-24h")
            least_ms = milliseconds(match[2])
            most_ms = milliseconds(match[3]) if match[3] else least_ms
        except ValueError as error:
            raise OptionError(f"--delays {part[:40]!r}: {error}") from error
        if most_ms < least_ms:
            raise OptionError(f"--delays {part[:40]!r}: the longer delay comes second")
        found.append(Delays(share=float(match[1]) / 100, least_ms=least_ms, most_ms=most_ms))
    if abs(sum(one.share for one in found) - 1) > 0.001:
        raise OptionError(f"--delays {text[:60]!r}: the shares must come to 100 %")
    return tuple(found)
