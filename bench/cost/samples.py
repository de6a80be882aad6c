"""Stacks from two sampling profilers: the JDK's Flight Recorder for the broker, py-spy for the daemon.

Both attach to a running process and leave its settings alone. A frame is ``package.Class.method`` or
``module.function``; the outermost comes first.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.errors import BenchError

TOOL_TIMEOUT_S = 300.0
PYTHON_RATE = 100
STACK_DEPTH = 128
# Nothing but the samples: the recorder's other events would cost more than they tell.
JFR_SETTINGS = """<?xml version="1.0" encoding="UTF-8"?>
<configuration version="2.0">
  <event name="jdk.ExecutionSample">
    <setting name="enabled">true</setting>
    <setting name="period">10 ms</setting>
  </event>
</configuration>
"""
_PY_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]+)\)")
_PY_THREAD = re.compile(r"thread \((?P<tid>\d+|0x[0-9A-Fa-f]+)\)")
_IDLE = frozenset(("thread._worker", "selectors.EpollSelector.select"))
"""Innermost frames of threads that wait, which py-spy takes for busy ones on a busy machine."""


@dataclass(frozen=True)
class Stack:
    """The frames of a thread, the outermost first. ``tid`` is the kernel's id, 0 if unknown."""

    tid: int
    thread: str
    frames: tuple[str, ...]


Stacks = Counter[Stack]
"""The number of samples of each stack."""


@contextmanager
def recorded(broker_pid: int, daemon_pid: int | None, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Profile the processes during the body; yields the recordings' paths, written at its end.

    Without a daemon there is no second one. Raises BenchError.
    """
    java, python = folder / "broker.jfr", folder / "daemon.txt"
    settings = folder / "cost.jfc"
    settings.write_text(JFR_SETTINGS, encoding="utf-8")
    java.unlink(missing_ok=True)
    _run("jcmd", str(broker_pid), "JFR.configure", f"stackdepth={STACK_DEPTH}")
    _run("jcmd", str(broker_pid), "JFR.start", "name=cost", f"settings={settings}")
    spy = _spy(daemon_pid, python) if daemon_pid is not None else None
    try:
        yield java, python
    finally:
        if spy is not None:
            _stop(spy)
        _run("jcmd", str(broker_pid), "JFR.stop", "name=cost", f"filename={java}")


def _spy(pid: int, path: Path) -> subprocess.Popen[bytes]:
    program = shutil.which(
        "py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if program is None:
        raise BenchError("no py-spy found: `pip install -e '.[bench]'`")
    command = [program, "record", "--pid", str(pid), "--format", "raw", "--output", str(path)]
    command += ["--rate", str(PYTHON_RATE), "--threads", "--function", "--full-filenames"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _stop(spy: subprocess.Popen[bytes]) -> None:
    spy.send_signal(signal.SIGINT)
    try:
        spy.wait(TOOL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        spy.kill()
        spy.wait()
        raise BenchError("py-spy did not end") from error


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{command[0]}, a part of the JDK, cannot profile the broker: {error}") from error
    if done.returncode:
        raise BenchError(f"{command[0]} {command[2]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def of_java(recording: Path) -> Stacks:
    """The stacks of a recording; raises BenchError."""
    text = _run(
        "jfr",
        "print",
        "--json",
        "--stack-depth",
        str(STACK_DEPTH),
        "--events",
        "jdk.ExecutionSample",
        str(recording),
    )
    return java_stacks(json.loads(text))


def java_stacks(printed: dict[str, Any]) -> Stacks:
    """The stacks in the output of ``jfr print --json``."""
    found: Stacks = Counter()
    for event in printed["recording"]["events"]:
        values = event["values"]
        thread, trace = values["sampledThread"], values["stackTrace"]
        if thread is None or trace is None:
            continue
        frames = []
        for frame in reversed(trace["frames"]):
            method = frame["method"]
            owner = method["type"]["name"].replace("/", ".")
            frames.append(f"{owner}.{method['name']}")
        found[Stack(thread["osThreadId"], thread["javaName"] or "", tuple(frames))] += 1
    return found


def of_python(recording: Path) -> Stacks:
    """The stacks in py-spy's output; none if it is empty."""
    try:
        return python_stacks(recording.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BenchError("py-spy wrote nothing: may this user trace the daemon?") from error


def python_stacks(raw: str) -> Stacks:
    """The stacks in py-spy's raw format, a line each: frames with semicolons between, and a count."""
    found: Stacks = Counter()
    for line in raw.splitlines():
        names, _, count = line.rpartition(" ")
        frames = names.split(";")
        tid, thread = 0, ""
        if (match := _PY_THREAD.match(frames[0])) is not None:
            tid = int(match["tid"], 0)
            thread = frames.pop(0).partition(": ")[2].strip('"')
        stack = Stack(tid, thread, tuple(map(_python_frame, frames)))
        if stack.frames and stack.frames[-1] not in _IDLE:
            found[stack] += int(count)
    return found


def _python_frame(text: str) -> str:
    """``module.function`` of ``function (/path/module.py)``; a package of the site is its name alone."""
    match = _PY_FRAME.fullmatch(text)
    if match is None:
        return text
    path = Path(match["file"])
    parts = path.with_suffix("").parts
    for root in ("site-packages", "dist-packages"):
        if root in parts:
            parts = parts[parts.index(root) + 1 :]
    for root in ("plugin", "index"):
        if root in parts:
            return ".".join(("tidegate", *parts[parts.index(root) :], match["function"]))
    return f"{parts[-1] if len(parts) > 3 else '.'.join(parts)}.{match['function']}"
