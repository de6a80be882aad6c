"""The options of a rebuild or a verification, from the command to the job."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict

from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.cluster import Cluster, ReadFrom

ENTRIES_PER_TASK = 250_000
ENTRIES_PER_FILE = 1_000_000
STAR = "*"
"""Stands for anything in a name."""


class RebuildOptions(BaseModel):
    """``topic`` and ``subscription`` may contain ``*``; ``work`` is a directory or an fsspec URL.

    work: may serve many jobs. service_url: None asks the admin API. keep: leave the files in ``work`` after
    success. repair: a verification repairs the index. any_daemon: whether or not the daemon serves the topic.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str
    subscription: str
    admin_url: str
    socket: str
    work: str
    service_url: str | None = None
    token_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    read_from: ReadFrom = ReadFrom.AUTO
    entries_per_task: int = ENTRIES_PER_TASK
    entries_per_file: int = ENTRIES_PER_FILE
    keep: bool = False
    dry_run: bool = False
    repair: bool = False
    any_daemon: bool = False

    @property
    def is_pattern(self) -> bool:
        """True if it is for all matching subscriptions, not for one."""
        return STAR in self.topic or STAR in self.subscription

    @property
    def folder(self) -> str:
        """The place in ``work`` for the files of this job alone."""
        of = f"{self.admin_url}\n{self.topic}\n{self.subscription}"
        return f"{self.work.rstrip('/')}/{hashlib.sha256(of.encode()).hexdigest()[:16]}"

    @property
    def access(self) -> Access:
        """The credentials."""
        return Access(self.token_file, self.tls_ca_file, self.tls_cert_file, self.tls_key_file)

    def cluster(self, service_url: str) -> Cluster:
        """The cluster of the topics."""
        return Cluster(service_url, self.admin_url, self.access, self.read_from)
