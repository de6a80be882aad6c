"""Size limits of a stream's batch, in Spark's classes; stand-ins for an older PySpark."""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2, where no batch has a limit

    class ReadLimit:  # type: ignore[no-redef]
        """The size limit of a batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything available."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most so many rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Notified at the start of a query that reads the present data and then ends."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
