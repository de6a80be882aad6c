"""Users' times, which should be milliseconds since the epoch.

Pure. Seconds and microseconds raise no error as milliseconds, and give wrong results.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf

from tidegate.pipeline.errors import TraceError

_SECONDS = (10**8, 10**11)
"""As seconds the years 1973 to 5138; as milliseconds 1970 to 1973, when there was no Pulsar."""
_MICROSECONDS_MIN = 10**14
_WHOLE_MAX = float(1 << 62)


def whole(number: Column) -> Column:
    """A column of floats as integers; null for a value too large, infinite, or NaN.

    Tools without nulls in integer columns write 1700000000000.0.
    """
    return sf.when(sf.abs(number) < _WHOLE_MAX, sf.floor(number))


def check_unit(what: str, least: int | None, most: int | None) -> None:
    """Raise ``TraceError`` if the least and the greatest of some times are surely in another unit.

    what: the times, in words for people. None: there are no times.
    """
    if least is None or most is None:
        return
    unit = "seconds" if _SECONDS[0] <= most < _SECONDS[1] else "micro- or nanoseconds"
    if unit == "seconds" or least >= _MICROSECONDS_MIN:
        raise TraceError(f"{what} must be milliseconds since the epoch: {most} looks like {unit}")
