"""Another writer of a cursor's metadata: the node of ZooKeeper with its record and properties."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.java_client import java_command

_JAVA = Path(__file__).parents[1] / "cluster" / "java"
_END_TIMEOUT_S = 30.0
_MIGRATION = "/pulsar/migration-coordinator/migration"


class _Program:
    """A Java program that is ready on entry, and has ended on exit.

    work_dir: for its log.
    """

    def __init__(self, name: str, *arguments: str, work_dir: Path) -> None:
        self._log_path = work_dir / f"{name}.log"
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*java_command(_JAVA / f"{name}.java"), *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        """Wait until it can begin."""
        try:
            self._wait_for("ready")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """End it, whatever it does."""
        self._kill()

    def _tell(self, line: str, answer: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        self._wait_for(answer)

    def _wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        # ZooKeeper's client may log to the output, too.
        assert any(line.strip() == word for line in self._process.stdout), f"it ended: {self._log_path}"

    def _kill(self) -> None:
        with self._process:
            self._process.kill()


class MetadataWriter(_Program):
    """Writes one cursor's metadata unchanged, so that only their version changes.

    zookeeper: host:port; topic: ``tenant/namespace/name``. Writing begins on entry.
    """

    def __init__(self, zookeeper: str, topic: str, subscription: str, work_dir: Path) -> None:
        super().__init__("MetadataWriter", zookeeper, cursor_path(topic, subscription), work_dir=work_dir)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """From entry until exit it writes every few ms; once only."""
        self._tell("", "writing")
        yield
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_END_TIMEOUT_S) == 0, f"it failed: {self._log_path}"


class MetadataRefusal(_Program):
    """Has writes refused, but not reads. zookeeper: host:port."""

    def __init__(self, zookeeper: str, work_dir: Path) -> None:
        super().__init__("MetadataRefusal", zookeeper, work_dir=work_dir)

    @contextlib.contextmanager
    def of_cursors(self, topic: str, *subscriptions: str) -> Iterator[None]:
        """From entry until exit ZooKeeper takes no write of these cursors of ``tenant/namespace/name``."""
        paths = [cursor_path(topic, one) for one in subscriptions]
        for path in paths:
            self._tell(f"refuse {path}", "done")
        try:
            yield
        finally:
            for path in paths:
                self._tell(f"allow {path}", "done")

    @contextlib.contextmanager
    def of_all(self) -> Iterator[None]:
        """From entry until exit Pulsar 5 takes no write: its change to another metadata store, given up.

        The other store is in each process's memory, and never in use.
        """
        self._change("PREPARATION")
        try:
            yield
        finally:
            self._change("FAILED")

    def _change(self, phase: str) -> None:
        state = json.dumps({"phase": phase, "targetUrl": "memory:none"}, separators=(",", ":"))
        self._tell(f"put {_MIGRATION} {state}", "done")


def cursor_path(topic: str, subscription: str) -> str:
    """The node of a cursor of ``tenant/namespace/name``."""
    namespace, _, name = topic.rpartition("/")
    return f"/managed-ledgers/{namespace}/persistent/{name}/{subscription}"
