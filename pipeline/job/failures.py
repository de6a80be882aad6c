"""What a job's failure means to the person who started it, as one line.

Pure. Spark wraps an error of a worker, or of planning, in its own with a traceback: ours is found in there.
"""

from __future__ import annotations

import re

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.request import ErrorEvent
from tidegate.plugin.errors import UserError
from tidegate.plugin.shown import without_passwords

_OURS = re.compile(r"^tidegate\.(?:\w+\.)*errors\.(\w+): (.+)$", re.MULTILINE)
_KNOWN = (
    (
        r"No space left on device|Disk quota exceeded",
        "a disk is full: free some space, or give Spark another with --conf spark.local.dir=DIR",
    ),
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
        r"OutOfMemoryError|Python worker exited unexpectedly|ExecutorLostFailure",
        "a worker ended in the middle, most likely for want of memory: give it more, or smaller partitions",
    ),
)
_LINE_MAX = 500


def explained(error: BaseException) -> ErrorEvent:
    """The end of a job by ``error``."""
    if isinstance(error, UserError):
        # 1 is a verdict: the daemon's refusal is none.
        exit_code = max(error.exit_code, PipelineError.exit_code)
        return ErrorEvent(message=_line(str(error)), exit_code=exit_code, expected=True)
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return ErrorEvent(message=_line(ours[-1][1]), exit_code=PipelineError.exit_code, expected=True)
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text):
            return ErrorEvent(message=meaning, exit_code=PipelineError.exit_code, expected=False)
    name = type(error).__name__
    return ErrorEvent(message=f"{name}: {_line(text)}", exit_code=PipelineError.exit_code, expected=False)


def _line(text: str) -> str:
    line = without_passwords(" ".join(text.split()))
    return line if len(line) <= _LINE_MAX else line[:_LINE_MAX] + " …"
