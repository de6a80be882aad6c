"""The functions that one entry enters in the daemon: an ADD from the socket to DURABLE, a DUE from the timer.

``python -m bench.profile.walk [--names]`` counts them and their modules in ``index`` and ``plugin``, in every
thread of a daemon with a store on disk, without its upkeep.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tidegate.index
import tidegate.plugin
from bench.harness.broker_client import BrokerClient
from bench.harness.index_driver import subscription_name
from tidegate.index import Entries
from tidegate.plugin.daemon import maintenance
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.daemon.serve import running_daemon
from tidegate.plugin.daemon.settings import load_settings

ROOTS = tuple(str(Path(module.__path__[0]).resolve()) for module in (tidegate.index, tidegate.plugin))
UPKEEP = maintenance.__file__
HOUR_MS = 3_600_000
SOON_MS = 300  # until the entry of the second walk is due
CREDIT = 100


class Function(NamedTuple):
    """A function by its module, from the folder of ``index`` and ``plugin``, and its qualified name."""

    module: str
    name: str


class Walks:
    """The functions entered during each walk, by its name."""

    def __init__(self) -> None:
        self.functions: dict[str, set[Function]] = {}
        self._now: set[Function] | None = None

    @contextmanager
    def walk(self, name: str) -> Iterator[None]:
        """Note the functions that are entered meanwhile."""
        self._now = self.functions[name] = set()
        try:
            yield
        finally:
            self._now = None

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """See ``sys.setprofile``."""
        now = self._now
        if now is None or event != "call" or not frame.f_code.co_filename.startswith(ROOTS):
            return
        path = Path(frame.f_code.co_filename)
        root = Path(next(each for each in ROOTS if str(path).startswith(each))).parent
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename == UPKEEP:
                return
            caller = caller.f_back
        now.add(Function(str(path.relative_to(root)), frame.f_code.co_qualname))


def _talk(socket: Path, walks: Walks) -> None:
    """A broker adds an entry that is due in an hour, and another one that is due soon, after one of each."""
    with BrokerClient(socket, window=1) as client:
        stream = client.open(subscription_name(), credit=CREDIT)
        client.until(lambda: stream.answered, "HELD")

        def add(entry_id: int, delay_ms: int) -> None:
            at_ms = time.time_ns() // 1_000_000 + delay_ms
            client.add(stream, Entries.of([(at_ms, 1, entry_id)]))
            client.until(lambda: not client.outstanding, "DURABLE")

        def await_due(count: int) -> None:
            client.until(lambda: sum(map(len, stream.due)) == count, "DUE")

        add(1, HOUR_MS)
        add(2, SOON_MS)
        await_due(1)
        with walks.walk("ADD"):
            add(3, HOUR_MS)
        add(4, SOON_MS)
        with walks.walk("DUE"):
            await_due(2)


async def _measure(folder: Path, walks: Walks) -> None:
    settings = load_settings({"data": folder / "data", "socket": folder / "daemon.sock"})
    threading.setprofile(walks.profile)  # for the daemon's threads, which begin now
    try:
        async with running_daemon(settings, make_logger("json", "error", io.StringIO())):
            threading.setprofile(None)
            loop = asyncio.get_running_loop()
            done = loop.create_future()

            def talk() -> None:
                error: BaseException | None = None
                try:
                    _talk(settings.socket, walks)
                except BaseException as raised:
                    error = raised
                loop.call_soon_threadsafe(done.set_result, error)

            client = threading.Thread(target=talk)
            client.start()
            sys.setprofile(walks.profile)
            error = await done
            sys.setprofile(None)
            client.join()
            if error is not None:
                raise error
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


def measured() -> dict[str, set[Function]]:
    """The functions of both walks."""
    walks = Walks()
    with tempfile.TemporaryDirectory(prefix="tg-") as folder:
        asyncio.run(_measure(Path(folder), walks))
    return walks.functions


def main(arguments: list[str]) -> None:
    """Print the counts, and the names if they are wanted."""
    for walk, functions in measured().items():
        modules = {function.module for function in functions}
        print(f"{walk}: {len(functions)} functions of {len(modules)} modules")
        if "--names" in arguments:
            for function in sorted(functions):
                print(f"  {function.module} {function.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
