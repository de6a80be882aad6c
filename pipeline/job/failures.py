"""A job's failure in one line, for its user.

Pure. Spark wraps a worker's or a planner's error in its own with a traceback; this extracts the original.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.request import ErrorEvent
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.shown import without_passwords

_FULL = r"No space left on device|Disk quota exceeded|File too large"
_WRITTEN_TO = re.compile(rf"FSError: java\.io\.IOException: (?:{_FULL})")
"""Spark's target of a write. Its own temporary files are not written through Hadoop's layer."""
_OURS = re.compile(r"^tidegate\.(?:\w+\.)*errors\.(\w+): (.+)$", re.MULTILINE)
_KNOWN = (
    (
        r"All masters are unresponsive|Could not parse Master URL|Failed to connect to master",
        "Spark's master does not answer: correct --master",
    ),
    (
        r"PYTHON_VERSION_MISMATCH|Python in worker has different version",
        "the workers have another version of Python: give them the one of this machine",
    ),
    (
        r"No module named '(?:tidegate|pcodec|pyarrow|numpy|crc32c|google)",
        "the workers lack a Python package: ship them with tidegate spark-package and --package",
    ),
    (
        r"Python worker failed to connect back",
        "a worker did not start in time, most likely for the machine is too busy: start again",
    ),
    (
        r"OutOfMemoryError|Python worker exited unexpectedly|ExecutorLostFailure",
        "a worker ended in the middle, most likely for want of memory: give it more, or smaller partitions",
    ),
)
LOCAL_IS_FULL = (
    "the disk of Spark's temporary files is full: free some space there, or give it another with TMPDIR=DIR "
    "or --conf spark.local.dir=DIR"
)
_LINE_MAX = 500


def explained(error: BaseException) -> ErrorEvent:
    """The event of a job that ended with ``error``."""
    if isinstance(error, UserError):
        # 1 is a verdict, unlike a daemon's refusal.
        exit_code = max(error.exit_code, PipelineError.exit_code)
        return ErrorEvent(message=_line(str(error)), exit_code=exit_code, expected=True)
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return ErrorEvent(message=_line(ours[-1][1]), exit_code=PipelineError.exit_code, expected=True)
    if re.search(_FULL, text):
        return ErrorEvent(message=LOCAL_IS_FULL, exit_code=PipelineError.exit_code, expected=True)
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text):
            return ErrorEvent(message=meaning, exit_code=PipelineError.exit_code, expected=False)
    name = type(error).__name__
    return ErrorEvent(message=f"{name}: {_line(text)}", exit_code=PipelineError.exit_code, expected=False)


@contextlib.contextmanager
def room_for(what: str, flag: str) -> Iterator[None]:
    """Name the full disk when Spark cannot write ``what``. Raises ``PipelineError``."""
    try:
        yield
    except Exception as error:
        if not _WRITTEN_TO.search(str(error)):
            raise
        raise PipelineError(
            f"cannot write {what}: the disk is full; free some space, or choose another {flag}"
        ) from error


def _line(text: str) -> str:
    line = without_passwords(" ".join(text.split()))
    return line if len(line) <= _LINE_MAX else line[:_LINE_MAX] + " …"
