"""What an audit is asked for, as it travels to the job."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, field_validator

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.topic.access import Access

_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".jsonl.gz": "json",
}


class Format(StrEnum):
    """How a record is stored."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    TOPIC = "topic"


class Record(BaseModel):
    """Where what was sent, or received, is recorded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: str
    format: Format

    @classmethod
    def of(cls, where: str, format_name: str | None) -> Record:
        """A file, a directory, a pattern, a URL that Spark can read, or a topic. Raises ``OptionError``."""
        if where.startswith("persistent://"):
            return cls(where=where, format=Format.TOPIC)
        if format_name is not None:
            if format_name not in (Format.PARQUET, Format.CSV, Format.JSON):
                raise OptionError(f"--format {format_name[:40]}: it is parquet, csv or json")
            return cls(where=where, format=Format(format_name))
        name = where.rstrip("/*").lower()
        for suffix, found in _SUFFIXES.items():
            if name.endswith(suffix):
                return cls(where=where, format=Format(found))
        return cls(where=where, format=Format.PARQUET)


class Pulsar(BaseModel):
    """Where topics are read from, if any are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    service_url: str
    admin_url: str
    token_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    def source_options(self, topic: str, *, payload: bool) -> dict[str, str]:
        """The options of the data source."""
        told = self.model_dump(exclude_none=True)
        return {**told, "topic": topic, "payload": "true" if payload else "false"}

    def access(self) -> Access:
        """The files with what lets one in."""
        return Access(self.token_file, self.tls_ca_file, self.tls_cert_file, self.tls_key_file)


class AuditOptions(BaseModel):
    """An audit.

    subscriptions: who should have received everything; empty: whoever has received something.
    until_ms: what is due later is pending, not lost; None: everything should have come.
    slice_width_ms, gap_ms: how wide a slice is, and how long nothing must come to be a gap.
    report: directory of the report, None for none. offending: where the offending messages go.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sent: Record
    received: Record
    pulsar: Pulsar | None = None
    subscriptions: tuple[str, ...] = ()
    until_ms: int | None = None
    slice_width_ms: int = 3_600_000
    gap_ms: int = 5_000
    report: str | None = None
    offending: str | None = None
    dry_run: bool = False
    stream: StreamOptions | None = None

    @field_validator("subscriptions")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """In an order that does not depend on how they were typed."""
        return tuple(sorted(set(names)))


class StreamOptions(BaseModel):
    """An audit beside production.

    checkpoint: where it goes on after a restart. once: only what is there now. trigger_s: seconds between two
    looks. watermark_ms: how much later than others a record may come. grace_ms: how long after it was due a
    message counts as lost. forget_ms: how long after that repeats are noticed.
    metrics: host and port of the Prometheus page, None for none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: str
    once: bool = False
    trigger_s: float = 10.0
    watermark_ms: int = 60_000
    grace_ms: int = 60_000
    forget_ms: int = 600_000
    metrics: tuple[str, int] | None = None


AuditOptions.model_rebuild()
