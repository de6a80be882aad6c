"""A broker's memory: objects on its heap, buffers outside it, and its pages from the kernel.

Garbage is collected first. The kernel's figure is the proportional set size: ZGC, the start script's choice,
maps the heap at several addresses, and the resident size counts each.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

import httpx
import psutil

from bench.harness.errors import BenchError

MIB = 2**20
COLLECT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class BrokerMemory:
    """Bytes: referenced objects, direct buffers, and pages of the process."""

    heap_bytes: int
    direct_bytes: int
    resident_bytes: int


def resident_bytes(pid: int) -> int:
    """The proportional set size of a process that was started here; raises BenchError if it is gone."""
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.Error as error:
        raise BenchError(f"the memory of process {pid} cannot be read: {error}") from error


def collect_garbage(pid: int) -> None:
    """Have a JVM that was started here collect its garbage, and wait for it; raises BenchError."""
    try:
        done = subprocess.run(
            ["jcmd", str(pid), "GC.run"],
            check=False,
            capture_output=True,
            text=True,
            timeout=COLLECT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"jcmd, a part of the JDK, cannot collect the broker's garbage: {error}") from error
    if done.returncode:
        raise BenchError(f"jcmd could not collect the broker's garbage: {done.stderr.strip()}")


def read(pid: int, admin_url: str) -> BrokerMemory:
    """The broker's memory now, after a collection; raises BenchError."""
    collect_garbage(pid)
    try:
        answer = httpx.get(f"{admin_url}/metrics/", timeout=30.0, trust_env=False, follow_redirects=True)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise BenchError(f"the broker's metrics cannot be read: {error}") from error
    return BrokerMemory(
        heap_bytes=gauge(answer.text, "jvm_memory_bytes_used", 'area="heap"'),
        direct_bytes=gauge(answer.text, "jvm_memory_direct_bytes_used"),
        resident_bytes=resident_bytes(pid),
    )


def gauge(exposition: str, name: str, label: str = "") -> int:
    """A gauge in Prometheus text, the one with that label if one is given; raises BenchError without it."""
    for labels, value in re.findall(rf"^{name}(?:\{{([^}}]*)\}})?\s+(\S+)", exposition, re.MULTILINE):
        if label in labels:
            return int(float(value))
    raise BenchError(f"the broker's metrics have no {name} {label}".rstrip())
