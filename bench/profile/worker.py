"""One hot path in a process of its own, bare or under a profiler.

``python -m bench.profile.worker PATH DIR COUNT bare|profiled`` prints its figures as one line of JSON.
"""

from __future__ import annotations

import re
import sys
from cProfile import Profile
from pathlib import Path
from types import CodeType

from bench.harness.worker_process import tell_and_wait
from bench.profile.hot_paths import PATHS, Region

_BUILT_IN = re.compile(r"<built-in method (?:builtins\.)?(.+)>")
_METHOD = re.compile(r"<method '(.+)' of '(?:.*\.)?(.+)' objects>")


def label(code: CodeType | str) -> str:
    """A function's name in the tables: ``persist.py PersistJob.run``, ``ndarray.sort``."""
    if isinstance(code, CodeType):
        path = Path(code.co_filename)
        library = "site-packages" in path.parts
        where = path.parts[path.parts.index("site-packages") + 1] if library else path.name
        return f"{where} {code.co_qualname}"
    method = _METHOD.fullmatch(code)
    if method is not None:
        return f"{method[2]}.{method[1]}"
    built_in = _BUILT_IN.fullmatch(code)
    return built_in[1] if built_in is not None else code


def by_function(profile: Profile) -> dict[str, float]:
    """Seconds in each function itself. Calls by an operator, or in Cython, count as the caller's own."""
    seconds: dict[str, float] = {}
    for entry in profile.getstats():
        name = label(entry.code)
        seconds[name] = seconds.get(name, 0.0) + entry.inlinetime
    return seconds


def main(argv: list[str]) -> None:
    """Run one path."""
    path, folder, count, how = argv[0], Path(argv[1]), int(argv[2]), argv[3]
    region = Region(Profile() if how == "profiled" else None)
    PATHS[path](folder, count, region)
    functions = by_function(region.profile) if region.profile is not None else {}
    tell_and_wait(
        {
            "wall_ns": region.wall_s * 1e9 / count,
            "cpu_ns": region.cpu_s * 1e9 / count,
            "switches": region.switches * 1e6 / count,
            "faults": region.faults * 1e3 / count,
            "functions_ns": {name: seconds * 1e9 / count for name, seconds in functions.items()},
        }
    )


if __name__ == "__main__":
    main(sys.argv[1:])
