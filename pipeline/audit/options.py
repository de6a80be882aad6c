"""The options of an audit, in the form that travels to the job."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, field_validator

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.names import SCALABLE

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
    """The storage format of a record."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    TOPIC = "topic"


# Spark would take them for files of an unknown file system.
_OTHER_TOPICS = (*SCALABLE, "non-persistent://")


class Record(BaseModel):
    """The place of a record of sent or received messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: str
    format: Format

    @classmethod
    def of(cls, where: str, format_name: str | None) -> Record:
        """A file, a directory, a pattern, a URL that Spark can read, or a topic. Raises ``OptionError``."""
        if where.startswith("persistent://"):
            return cls(where=where, format=Format.TOPIC)
        if where.startswith(_OTHER_TOPICS):
            raise OptionError(f"{where[:80]}: only persistent:// topics can be read; give a record in a file")
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
    """Access to topics, if a record is one."""

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
        """The credential files."""
        return Access(self.token_file, self.tls_ca_file, self.tls_cert_file, self.tls_key_file)


class AuditOptions(BaseModel):
    """An audit.

    subscriptions: those that should receive everything; empty: all with any receipt. until_ms: messages due
    later are pending, not lost; None: none is. slice_width_ms, gap_ms: a slice's width, and the shortest
    silence that is a gap. report, offending: folders, None for none.
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
        """In an order independent of the typed one."""
        return tuple(sorted(set(names)))


class StreamOptions(BaseModel):
    """An audit beside production.

    checkpoint: where it continues after a restart. once: only the present records. trigger_s: seconds between
    two looks. watermark_ms: the largest delay of one record behind others. grace_ms: a message counts as lost
    so long after it was due. forget_ms: repeats are noticed so long after that. metrics: host and port of the
    Prometheus page, None for none.
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
