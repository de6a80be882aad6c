"""``tidegate serve``: assembles the parts, runs until told to stop, and leaves everything on disk.

Invariants: the daemon takes the data directory and the socket before it serves anything, and returns them in
every case; on SIGTERM and SIGINT it tells every connected broker, commits everything received, shortens long
journals, and exits with 0. A killed process loses nothing reported durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidegate.index import (
    Catalog,
    Clock,
    DamagedDirectoryError,
    IndexOptions,
    RocksStore,
    Store,
    SystemClock,
    TappedStore,
    TidegateIndexError,
)
from tidegate.plugin.daemon import descriptors, report
from tidegate.plugin.daemon.allocator import collect_rarely, give_back_memory
from tidegate.plugin.daemon.audit_log import NAMES as AUDIT_NAMES
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.daemon.gauges import gauges
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.listener import Listener, lock_path
from tidegate.plugin.daemon.logs import log_bugs, prepare
from tidegate.plugin.daemon.server import Server
from tidegate.plugin.daemon.settings import Settings, read_token, unknown_variables
from tidegate.plugin.daemon.start_times import StartTimes, process_started_ns
from tidegate.plugin.daemon.supervisor import Supervisor
from tidegate.plugin.errors import StartError, StopError
from tidegate.plugin.telemetry.address import HttpAddress
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger
    from tidegate.plugin.telemetry.http import HttpSide
    from tidegate.plugin.telemetry.otlp import OtlpPush

StoreFactory = Callable[[Settings], Store]
Exposition = Callable[[], Awaitable[bytes]]
OpenedT = TypeVar("OpenedT")


@dataclass(frozen=True)
class RunningDaemon:
    """The parts of a serving daemon."""

    engine: DaemonEngine
    exposition: Exposition
    health: Health
    http_port: int | None
    start_times: StartTimes


@functools.cache
def product_version() -> str:
    """The installed version."""
    import importlib.metadata  # noqa: PLC0415 nobody asks before the daemon listens

    return importlib.metadata.version("tidegate")


def product_name() -> str:
    """``tidegate`` and its version."""
    return f"tidegate {product_version()}"


def open_store(settings: Settings) -> Store:
    """The RocksDB store in the data directory. Raises the index's errors."""
    # The socket exists before the store, and may be in the same directory.
    near = (settings.socket, lock_path(settings.socket), settings.http_token_file)
    data = settings.data.absolute()
    beside = {path.name for path in near if path is not None and path.absolute().parent == data}
    beside.update(AUDIT_NAMES)
    return RocksStore.open(settings.data, beside)


def index_options(settings: Settings) -> IndexOptions:
    """The index's options, from the settings."""
    return IndexOptions(
        slice_width_ms=settings.slice_width_ms,
        slice_width_auto=settings.slice_width_is_auto,
        staging_budget_bytes=settings.staging_bytes,
        prefetch_ms=settings.prefetch_ms,
        quarantine_budget_bytes=settings.quarantine_bytes,
        retry_ms=settings.storage_retry_ms,
    )


@asynccontextmanager
async def running_daemon(
    settings: Settings,
    log: Logger,
    clock: Clock | None = None,
    store_factory: StoreFactory = open_store,
    began_ns: int | None = None,
) -> AsyncIterator[RunningDaemon]:
    """A daemon that serves inside the ``async with`` and stops cleanly at its end.

    began_ns: begin of its start, by the clock; None: now. Raises ``UserError``.
    """
    clock = SystemClock() if clock is None else clock
    times = StartTimes(clock, began_ns)
    times.done("loading")
    loop = asyncio.get_running_loop()
    if settings.otlp:
        from tidegate.plugin.telemetry.otlp import require_otel  # noqa: PLC0415

        require_otel()
    token = None if settings.http_token_file is None else read_token(settings.http_token_file)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(closing(Listener(settings.socket)))
        executor = stack.enter_context(_threads(2, "tidegate-index"))
        commit_executor = stack.enter_context(_threads(1, "tidegate-commit"))
        log_executor = stack.enter_context(_threads(1, "tidegate-log"))
        look_executor = stack.enter_context(_threads(1, "tidegate-look"))
        times.done("claiming")
        opened = _open_catalog(settings, clock, store_factory, executor, log=log, times=times)
        catalog, store = stack.enter_context(opened)
        metrics, health = Metrics(product_version), Health()
        logs = IndexLogs(catalog, store, clock, loop, executor=log_executor, metrics=metrics, log=log)
        engine = DaemonEngine(
            catalog,
            clock,
            loop,
            commit_executor=commit_executor,
            settings=settings,
            metrics=metrics,
            health=health,
            log=log,
            product=product_name,
            daemon_id=secrets.randbits(64),
            logs=logs,
            look_executor=look_executor,
        )

        async def exposition() -> bytes:
            return metrics.exposition(await gauges(engine))

        otlp: OtlpPush | None = None
        server = Server(listener, engine, clock, loop, settings=settings, metrics=metrics, log=log)
        http: HttpSide | None = None
        try:
            if settings.http_address is not None:
                health.block("http", "starting: brokers are served, HTTP is not yet")
            server.start()
            engine.start()
            times.done("accepting")
            # In a thread and after serving begins: its imports take longer than all the rest.
            http = await asyncio.to_thread(
                _http_side, settings, engine, exposition, health, token=token, loop=loop, log=log
            )
            if http is not None:
                await http.start()
            health.clear("http")
            if settings.otlp:
                otlp = await asyncio.to_thread(_otlp_push, settings, engine, metrics, loop=loop, log=log)
                otlp.start()
            yield RunningDaemon(engine, exposition, health, None if http is None else http.port, times)
        finally:
            engine.stop()
            if otlp is not None:
                await otlp.stop()
            await server.stop(settings.shutdown_seconds)
            if http is not None:
                await http.stop()


@contextmanager
def _threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Threads started at once: work for a thread that cannot start would wait for ever.

    Raises ``StartError``.
    """
    with ThreadPoolExecutor(count, thread_name_prefix=name) as executor:
        all_there = threading.Barrier(count + 1)
        try:
            for _ in range(count):
                executor.submit(all_there.wait)
        except RuntimeError as error:
            all_there.abort()
            raise StartError(
                f"cannot start a thread ({error}): raise the limit of processes and threads (ulimit -u, "
                "TasksMax= of systemd, the limit of pids of a container)"
            ) from error
        all_there.wait()
        yield executor


async def serve(settings: Settings, log: Logger, environment: Mapping[str, str]) -> None:
    """Run until SIGTERM or SIGINT; a second one ends the process at once. environment: names the supervisor,
    if any.

    Raises ``UserError`` if it cannot start.
    """
    descriptors.raise_limit()
    give_back_memory()
    os.umask(0o077)  # RocksDB makes files at any time, and no other user may read them
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(environment, os.getpid())

    def on_signal(number: signal.Signals) -> None:
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)  # for SIGINT, Python's default would raise and clean up
        stop.set()
        supervisor.stopping()
        log.info("stopping", signal=number.name)

    loop.set_exception_handler(log_bugs(log))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    for name in unknown_variables():
        log.warning("ignoring a variable with a setting's prefix and no setting's name", name=name)
    began_ns = process_started_ns()
    while await _serve_until(stop, settings, log, began_ns, supervisor):
        began_ns = None
        log.warning("the daemon begins anew with the rest of its data directory")
    supervisor.end()
    log.info("stopped, everything received is on disk")


async def _serve_until(
    stop: asyncio.Event, settings: Settings, log: Logger, began_ns: int | None, supervisor: Supervisor
) -> bool:
    """Serve until a request to stop; true if the store had lost durable data before that."""
    lost = False
    try:
        async with running_daemon(settings, log, began_ns=began_ns) as daemon:
            await asyncio.to_thread(prepare, log)
            await asyncio.to_thread(product_version)
            collect_rarely()
            totals = (await daemon.engine.surveyor.survey()).totals
            if not stop.is_set():  # else it has said already that it stops
                supervisor.ready(asyncio.get_running_loop())
                log.info(
                    "serving",
                    socket=str(settings.socket),
                    data=str(settings.data),
                    http=_where(settings.http_address, daemon.http_port),
                    subscriptions=totals.subscriptions,
                    entries_held=totals.held,
                    **daemon.start_times.fields(),
                )
            waiting = [asyncio.ensure_future(event.wait()) for event in (stop, daemon.engine.lost)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()
            lost = daemon.engine.lost.is_set()
    except StopError:
        if not lost:
            raise
    return lost and not stop.is_set()


def _where(address: HttpAddress | None, port: int | None) -> str | None:
    """The HTTP side's address, with the real port for port 0."""
    return None if address is None or port is None else str(address.at(port))


@contextmanager
def _open_catalog(
    settings: Settings,
    clock: Clock,
    store_factory: StoreFactory,
    executor: ThreadPoolExecutor,
    *,
    log: Logger,
    times: StartTimes,
) -> Iterator[tuple[Catalog, TappedStore]]:
    def opened() -> tuple[Catalog, TappedStore]:
        store = TappedStore(store_factory(settings), clock)
        times.done("store")
        try:
            catalog = Catalog.open(store, clock, index_options(settings), executor, parked=True)
        except TidegateIndexError:
            store.close()
            raise
        times.done("indexes")
        return catalog, store

    try:
        found = _unless_damaged(opened)
        if isinstance(found, DamagedDirectoryError):
            _move_aside(settings.data, found, log)
            found = opened()
        catalog, store = found
    except TidegateIndexError as error:
        raise StartError(str(error)) from error
    try:
        yield catalog, store
    finally:
        try:
            catalog.close()
        except TidegateIndexError as error:
            raise StopError(f"cannot persist everything ({error}); durable data is kept") from error


def _unless_damaged(opened: Callable[[], OpenedT]) -> OpenedT | DamagedDirectoryError:
    try:
        return opened()
    except DamagedDirectoryError as error:
        # A traceback's references to the database would keep it open, and locked.
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def _move_aside(data: Path, damage: DamagedDirectoryError, log: Logger) -> None:
    """Move a damaged store aside. Raises StorageError, and the damage unless the store is surely ours."""
    gc.collect()
    aside = RocksStore.move_aside(data)
    if aside is None:
        raise damage
    log.error(
        "the data directory is damaged: its content is moved away, and the daemon begins anew without it; "
        "its indexes are restored from their logs, or else the topics are read again. Look at the disk",
        data=str(data),
        moved_to=str(aside),
        reason=damage.reason,
    )


def _otlp_push(
    settings: Settings,
    engine: DaemonEngine,
    metrics: Metrics,
    *,
    loop: asyncio.AbstractEventLoop,
    log: Logger,
) -> OtlpPush:
    from tidegate.plugin.telemetry.otlp import Moment, OtlpPush  # noqa: PLC0415

    async def moment() -> Moment:
        state = await gauges(engine)
        return Moment(metrics.families(state), state.series)

    return OtlpPush(
        settings.otlp_endpoint,
        settings.otlp_interval_ms / 1_000,
        moment,
        version=product_version(),
        instance=f"{engine.daemon_id:016x}",
        started_ms=engine.started_at_ms,
        count=metrics.otlp_exports.inc,
        loop=loop,
        log=log,
    )


def _http_side(
    settings: Settings,
    engine: DaemonEngine,
    exposition: Exposition,
    health: Health,
    *,
    token: str | None,
    loop: asyncio.AbstractEventLoop,
    log: Logger,
) -> HttpSide | None:
    if settings.http_address is None:
        return None
    from tidegate.plugin.telemetry.http import HttpSide  # noqa: PLC0415

    return HttpSide(
        settings.http_address,
        exposition,
        health,
        {
            "held": lambda: report.status(engine, report.SUBSCRIPTIONS_MAX),
            "due": lambda: report.status(engine, report.PAGE_SUBSCRIPTIONS, by_due=True),
        },
        engine.queries.api,
        token=token,
        hosts=settings.http_host_names,
        loop=loop,
        connections_max=descriptors.HTTP_MAX,
        log=log,
    )
