"""The part of asyncio's event loop that the daemon uses, on the kernel's time, and its executors.

Anything else raises NotImplementedError, from asyncio's own abstract class. Invariants: callbacks run one at
a time, in the order they became ready; a timer never runs early by the machine's monotonic clock; an
executor's job runs in pieces, between which the world goes on, because each write to the store lets it (see
`store`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context
from functools import partial
from typing import Any

from tests.sim.clocks import MachineClock
from tests.sim.kernel import NS_PER_S, BrokenSimulation, Event, Kernel, Killed, Process
from tidegate.index.errors import TidegateIndexError
from tidegate.index.log.home import HomeError

_EXPECTED = (HomeError, TidegateIndexError, TimeoutError)
_UNSEEN_NS = 30 * NS_PER_S  # longer than bookies are away: of appends that go together one may wait for them
_NOT_YET_NS = 200_000
_WAITS_MAX = 10


class NotYet(BaseException):
    """A job would wait for another one, below it on the one stack: it begins again later."""


class VirtualHandle:
    """A callback that waits for its turn or its time, as asyncio.Handle and asyncio.TimerHandle."""

    __slots__ = ("args", "call", "when_s")

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...], when_s: float) -> None:
        self.call: Callable[..., Any] | None = call
        self.args = args
        self.when_s = when_s

    def cancel(self) -> None:
        self.call = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.call is None

    def when(self) -> float:
        return self.when_s


class VirtualFuture(asyncio.Future[Any]):
    """Tells its loop when it fails."""

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        super().set_exception(exception)
        loop = self.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.failed(self)


class VirtualLoop(asyncio.AbstractEventLoop):
    """One process's loop. `lag_ns`: how late a turn may be.

    `on_bug` gets a callback's error, and a failed task or future that nobody asks for its outcome: the real
    loop would report it at some garbage collection.
    """

    def __init__(
        self,
        kernel: Kernel,
        process: Process,
        clock: MachineClock,
        on_bug: Callable[[BaseException], None],
        lag_ns: int,
    ) -> None:
        self._kernel = kernel
        self._process = process
        self._clock = clock
        self._on_bug = on_bug
        self._lag_ns = lag_ns
        self._ready: deque[VirtualHandle] = deque()
        self._turn: Event | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._told: list[BaseException] = []
        self.others: VirtualExecutor | None = None  # for work that names no executor

    def time(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._judge)
        return task

    def _judge(self, task: asyncio.Task[Any]) -> None:
        """A task keeps its error to itself; a bug, the product's or the simulation's, comes to light here."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task._exception  # asking for it would count as having seen it
        if error is None:
            return
        if isinstance(error, _EXPECTED):
            self.failed(task)
            return
        task.exception()
        if isinstance(error, Killed):
            return
        if not isinstance(error, Exception):
            raise error
        self._on_bug(error)

    def failed(self, future: asyncio.Future[Any]) -> None:
        """Somebody must ask for a failure's outcome."""
        self._failed.append((self._kernel.now_ns, future))

    def _judge_unseen(self) -> None:
        while self._failed and self._failed[0][0] + _UNSEEN_NS < self._kernel.now_ns:
            _, future = self._failed.popleft()
            if future._log_traceback:
                self._on_bug(RuntimeError(f"nobody has asked for the outcome of {future!r}"))
        while self._told:
            self._on_bug(self._told.pop())

    def release(self) -> None:
        """The run is over: end the tasks that still wait."""
        former = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._tasks:
                task = self._tasks.pop()
                setattr(task, "_log_destroy_pending", False)  # noqa: B010 mypy
                with contextlib.suppress(Exception, asyncio.CancelledError, Killed):
                    for _ in range(_WAITS_MAX):  # it may want to wait while it ends
                        task.get_coro().throw(asyncio.CancelledError())
        finally:
            asyncio._set_running_loop(former)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, 0.0)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, self.time() + delay)
        true_ns = self._clock.true_delay_ns(max(0, int(delay * NS_PER_S))) + 1
        self._kernel.after(true_ns, self._process, self._enqueue, handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        return self.call_later(when - self.time(), callback, *args)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        executor = executor or self.others
        if not isinstance(executor, VirtualExecutor):
            # A real thread is as fast as it likes, and reaches things without a model here.
            raise BrokenSimulation(f"work for {executor!r}, which is beside the simulation")
        waiting: asyncio.Future[Any] = self.create_future()

        def settle(done: Future[Any]) -> None:
            if waiting.done():
                return  # the waiter has given up
            error = done.exception()
            if error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(done.result())

        executor.submit(func, *args).add_done_callback(lambda done: self.call_soon_threadsafe(settle, done))
        return waiting

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.dead:
            return
        error = context.get("exception")
        # A destructor may call this, where nothing can be raised.
        self._told.append(error if isinstance(error, BaseException) else RuntimeError(context.get("message")))

    def _enqueue(self, handle: VirtualHandle) -> None:
        if handle.call is None or self._process.dead:
            return
        self._ready.append(handle)
        if self._turn is None:
            lag_ns = self._kernel.between_ns(0, self._lag_ns)
            self._turn = self._kernel.after(lag_ns, self._process, self._run_turn)

    def _run_turn(self) -> None:
        self._turn = None
        self._judge_unseen()
        former = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self._run_ready()
        finally:
            asyncio._set_running_loop(former)
        if self._ready and self._turn is None and not self._process.dead:
            self._turn = self._kernel.after(
                self._kernel.between_ns(0, self._lag_ns), self._process, self._run_turn
            )

    def _run_ready(self) -> None:
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.call is None:
                continue
            self._kernel.steps += 1
            try:
                handle.call(*handle.args)
            except Killed:
                return
            except Exception as error:
                self._on_bug(error)
            if self._process.dead:
                return


class VirtualExecutor(Executor):
    """One thread of the daemon. A job begins up to `delay_ns` after its submission."""

    def __init__(self, kernel: Kernel, process: Process, delay_ns: int) -> None:
        self._kernel = kernel
        self._process = process
        self._delay_ns = delay_ns
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._next: Event | None = None
        self.running = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: fn(*args, **kwargs)))
        self._arm()
        return future

    @property
    def idle(self) -> bool:
        """True if nothing runs and nothing waits."""
        return not self.running and not self._jobs

    def _arm(self) -> None:
        if self._next is None and not self.running and self._jobs:
            delay_ns = self._kernel.between_ns(0, self._delay_ns)
            self._next = self._kernel.after(delay_ns, self._process, self._run_one)

    def _run_one(self) -> None:
        self._next = None
        future, job = self._jobs.popleft()
        self.running = True
        self._kernel.on_worker = True
        try:
            result = job()
        except Killed:
            return
        except NotYet:
            self.running = False
            self._jobs.appendleft((future, job))
            self._next = self._kernel.after(_NOT_YET_NS, self._process, self._run_one)
            return
        except Exception as error:
            settle = partial(future.set_exception, error)
        else:
            settle = partial(future.set_result, result)
        finally:
            self._kernel.on_worker = False
        self._done(settle)

    def _done(self, settle: Callable[[], None]) -> None:
        if self._process.stopped and not self._process.dead:
            # The process was stopped during its thread's write: it learns of the end when it goes on.
            self._kernel.after(0, self._process, self._done, settle)
            return
        self.running = False
        if not self._process.dead:
            settle()
            self._arm()
