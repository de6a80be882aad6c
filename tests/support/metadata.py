"""Somebody else who writes a cursor's metadata: the node of ZooKeeper with its record and properties."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.java_client import java_command

_WRITER = Path(__file__).parents[1] / "cluster" / "java" / "MetadataWriter.java"
_END_TIMEOUT_S = 30.0


class MetadataWriter:
    """Writes the metadata of one cursor as they are, so that only their version changes.

    zookeeper: host:port; topic: ``tenant/namespace/name``; work_dir: where it says what went wrong. It is
    ready on entry, so that writing begins at once, and has ended on exit.
    """

    def __init__(self, zookeeper: str, topic: str, subscription: str, work_dir: Path) -> None:
        namespace, _, name = topic.rpartition("/")
        path = f"/managed-ledgers/{namespace}/persistent/{name}/{subscription}"
        self._log_path = work_dir / "metadata-writer.log"
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*java_command(_WRITER), zookeeper, path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def __enter__(self) -> MetadataWriter:
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

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """From entry until exit it writes every few ms; once only."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        self._wait_for("writing")
        yield
        self._process.stdin.close()
        assert self._process.wait(_END_TIMEOUT_S) == 0, f"it failed: {self._log_path}"

    def _wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        # ZooKeeper's client may log to the output, too.
        assert any(line.strip() == word for line in self._process.stdout), f"it ended: {self._log_path}"

    def _kill(self) -> None:
        with self._process:
            self._process.kill()
