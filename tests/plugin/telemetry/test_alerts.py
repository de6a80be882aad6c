"""A real Prometheus fires the daemon's alerts from real faults of real daemons; a healthy one gets none, and
the dashboard's panels of the daemon have data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.daemons import DaemonProcess
from tests.support.prometheus import OF_A_BROKER, SCRAPE_S, Prometheus, panels_without_data
from tests.support.shim_client import DaemonError, ShimClient, entries
from tests.support.waiting import until
from tidegate.plugin.drill.stands.small_disk import SmallDisk
from tidegate.plugin.wire.messages import Bypassed, BypassedDispatcher

pytestmark = pytest.mark.prometheus
TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
DISK_BYTES = 16 << 20
LIVES = 4
TIMEOUT_S = 120.0
OF_A_BUSY_MACHINE = {
    "TidegateDown",
    "TidegateNoBroker",
    "TidegateOverdue",
    "TidegateLatePush",
    "TidegateSlowDisk",
}
"""Rules that look at seconds, where they should look at minutes, may fire for a healthy daemon, too."""
NO_DISK = os.geteuid() != 0
"""Only root mounts a small disk."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class OnSmallDisk(DaemonProcess):
    """Its data directory is a small disk."""

    disk: SmallDisk

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._prepare()
        return [*self.disk.prefix, *command], environment


async def healthy(daemon: DaemonProcess) -> None:
    """A broker is connected, entries come and go."""
    async with await ShimClient.connect(daemon.socket_path) as client:
        stream = await client.open(TOPIC, horizon_ms=2_000)
        for number in range(1_000_000):
            stream.add(entries(10, now_ms() + 3_000, ledger_id=number))
            stream.mark_delete(number - 100, 10)
            stream.give_credit(10)
            await asyncio.sleep(0.5)


async def restarted(daemon: DaemonProcess) -> None:
    """No broker, a crash loop, and then no daemon."""
    for _ in range(LIVES):
        await asyncio.sleep(1.5 * SCRAPE_S)
        daemon.kill()
        await asyncio.to_thread(daemon.start)
    await asyncio.sleep(3 * SCRAPE_S)
    daemon.kill()


async def full(daemon: DaemonProcess) -> None:
    """The disk is full when entries come."""
    async with await ShimClient.connect(daemon.socket_path) as client:
        assert isinstance(daemon, OnSmallDisk)
        daemon.disk.fill()
        while True:
            with contextlib.suppress(DaemonError):
                stream = await client.open(TOPIC)
                stream.add(entries(10_000, now_ms() + HOUR_MS))
                await stream.durable()
            await asyncio.sleep(0.1)


async def damaged(daemon: DaemonProcess) -> None:
    """A bit of the store has flipped while the daemon was stopped."""
    assert daemon.stop() == 0
    current = daemon.data_dir / "CURRENT"
    content = bytearray(current.read_bytes())
    content[2] ^= 0x10
    current.write_bytes(content)
    await asyncio.to_thread(daemon.start)


async def stuck(daemon: DaemonProcess) -> None:
    """The consumers acknowledge nothing, what comes is late already, and a commit takes half a second.

    Another tracker has a dispatcher of its broker.
    """
    async with await ShimClient.connect(daemon.socket_path) as client:
        client.send(Bypassed(1, (BypassedDispatcher(TOPIC, "other", 3, "of another factory"),)))
        taken = await client.open(TOPIC, "taken")
        stuck = await client.open(TOPIC, "stuck", credit=4)
        for number in range(1_000_000):
            for stream in (taken, stuck):
                stream.add(entries(5, now_ms() - 30_000, ledger_id=number))
            await asyncio.sleep(0.2)


async def flooded(daemon: DaemonProcess) -> None:
    """Entries come faster than they can be spilled."""
    async with await ShimClient.connect(daemon.socket_path) as client:
        stream = await client.open(TOPIC)
        for number in range(1_000_000):
            stream.add(entries(20_000, now_ms() + HOUR_MS, ledger_id=number))
            await client.drain()


FAULTS: dict[str, tuple[Callable[[DaemonProcess], Awaitable[None]], set[str]]] = {
    "healthy": (healthy, set()),
    "restarted": (restarted, {"TidegateRestarts", "TidegateNoBroker", "TidegateDown"}),
    "full": (full, {"TidegateDiskLow", "TidegateNotReady"}),
    "damaged": (damaged, {"TidegateDamage"}),
    "stuck": (
        stuck,
        {
            "TidegateBypassed",
            "TidegateNoCredit",
            "TidegateOverdue",
            "TidegateLatePush",
            "TidegateSlowDisk",
        },
    ),
    "flooded": (flooded, {"TidegateReadPause"}),
}
SETTINGS = {
    "stuck": {"commit_interval_ms": "500"},
    "flooded": {"staging_bytes": "65536", "staging_bytes_max": "131072"},
}


@pytest.fixture
def daemons() -> Iterator[dict[str, DaemonProcess]]:
    """A running daemon for each fault."""
    with contextlib.ExitStack() as stack:
        made: dict[str, DaemonProcess] = {}
        for name in FAULTS:
            if name == "full" and NO_DISK:
                continue
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-")))
            kind = OnSmallDisk if name == "full" else DaemonProcess
            made[name] = daemon = kind(directory, settings=SETTINGS.get(name))
            if isinstance(daemon, OnSmallDisk):
                daemon.disk = SmallDisk(daemon.data_dir, DISK_BYTES)
                stack.callback(daemon.disk.close)
            stack.callback(daemon.kill)
            daemon.spawn()
        for daemon in made.values():
            daemon.wait_ready(TIMEOUT_S)
        yield made


async def test_each_fault_fires_its_alert_and_health_none(
    daemons: dict[str, DaemonProcess], tmp_path: Path
) -> None:
    names = {daemon.http: name for name, daemon in daemons.items()}
    wanted = {(alert, name) for name in daemons for alert in FAULTS[name][1]}
    fired: set[tuple[str, str]] = set()
    empty_panels: set[str] = set()
    with Prometheus(tmp_path / "prometheus", {"tidegate": list(names)}) as prometheus:
        await until(lambda: len(prometheus.query("up == 1")) == len(daemons), TIMEOUT_S)
        work = [asyncio.ensure_future(FAULTS[name][0](daemon)) for name, daemon in daemons.items()]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not wanted <= fired or empty_panels:
                    empty_panels = {
                        expr
                        for expr in await asyncio.to_thread(panels_without_data, prometheus)
                        if not any(one in expr for one in OF_A_BROKER)
                    }
                    fired |= {(alert, names[at]) for alert, at in await asyncio.to_thread(prometheus.firing)}
                    for one in work:
                        if one.done():
                            one.result()
                    await asyncio.sleep(SCRAPE_S / 4)
        except TimeoutError:
            pytest.fail(f"these do not fire: {sorted(wanted - fired)}; panels without data: {empty_panels}")
        finally:
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)
    assert not {alert for alert, name in fired if name == "healthy"} - OF_A_BUSY_MACHINE
