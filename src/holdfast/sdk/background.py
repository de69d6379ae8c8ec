"""A client in the background: it runs on a loop in a thread of its own.

Callers in threads, on any loop or in a forked child send their work there and get the result back. The
thread starts when it is first needed and ends with the process, or with `close`.
"""

import asyncio
import atexit
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from threading import RLock, Thread, current_thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from holdfast.core.errors import Invalid, Unavailable
from holdfast.sdk.async_client import AsyncClient

T = TypeVar("T")

CLOSE_SECONDS_MAX = 10.0
"""How long a process that ends waits until its store is closed. Acknowledged writes are durable before."""
_CLOSED = "The store was closed before it responded."


class BackgroundClient:
    """A client that blocking callers and coroutines of any loop may use."""

    def __init__(self, client: Callable[[], AsyncClient]) -> None:
        self._new_client = client
        self._reset()
        _instances.add(self)

    def _reset(self) -> None:
        self._lock = RLock()  # a stream that is garbage-collected meanwhile sends `leave`
        self._host: _Host | None = None
        self._loop_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = WeakKeyDictionary()

    @property
    def open(self) -> bool:
        return self._host is not None or len(self._loop_clients) > 0

    def call(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Do `work` with the client and wait for its result. An interrupted caller cancels the work."""
        return self._wait(work)

    async def call_async(self, work: Callable[[AsyncClient], Awaitable[T]], *, here: bool = False) -> T:
        """Do `work` with the client; with `here`, on the caller's own loop, with a client that is closed
        when that loop shuts down."""
        if here:
            return await work(await self._client_here())
        future = self._send(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and task is not None and not task.cancelling():
                raise Unavailable(_CLOSED, applied="unknown") from None
            raise

    def begin(self, work: Callable[[AsyncClient], Awaitable[T]]) -> Future[T]:
        """Begin `work` with the client, and return without waiting. To cancel the future cancels the work."""
        return self._send(work)

    def stream(self, make: Callable[[AsyncClient], AsyncGenerator[T, None]]) -> Iterator[T]:
        """Yield what an asynchronous stream yields. The stream is closed when the caller leaves."""

        async def start(client: AsyncClient) -> tuple[AsyncGenerator[T, None], _Host | None]:
            return make(client), self._host

        async def following(_: AsyncClient) -> tuple[T, ...]:
            async for item in items:
                return (item,)
            return ()

        async def leave(_: AsyncClient) -> None:
            with suppress(RuntimeError):  # it is ending already, because its caller was interrupted
                await items.aclose()

        items, host = self.call(start)
        try:
            while found := self._wait(following, host):
                yield found[0]
        finally:
            with suppress(Unavailable):
                self._send(leave, host)

    def close(self, *, at_exit: bool = False) -> None:
        """Close the client and end the thread. The next call starts a new one."""
        with self._lock:
            host = self._host
            if host is not None and current_thread() is host.thread:
                raise Invalid("The background cannot close itself; close it from another thread.")
            self._host = None
        if host is not None:
            host.close(at_exit=at_exit)

    def _send(
        self,
        work: Callable[[AsyncClient], Awaitable[T]],
        only: "_Host | None" = None,
        *,
        blocking: bool = False,
    ) -> Future[T]:
        """Send `work` to the loop; `Unavailable` if that is not the one of `only`."""
        with self._lock:
            if only is not None and self._host is not only:
                raise Unavailable(_CLOSED)
            if self._host is None:
                self._host = _Host(self._new_client())
            if blocking and current_thread() is self._host.thread:
                raise Invalid("This would wait for itself: on this loop, use the form for coroutines.")
            return asyncio.run_coroutine_threadsafe(self._host.do(work), self._host.loop)

    def _wait(self, work: Callable[[AsyncClient], Awaitable[T]], only: "_Host | None" = None) -> T:
        future: Future[T] | None = None
        try:
            future = self._send(work, only, blocking=True)
            return future.result()
        except CancelledError:
            raise Unavailable(_CLOSED, applied="unknown") from None
        except BaseException:
            if future is not None:
                future.cancel()
            raise
        finally:
            del future  # it holds the error, whose traceback holds this frame

    async def _client_here(self) -> AsyncClient:
        loop = asyncio.get_running_loop()
        there = self._loop_clients.get(loop)
        if there is None:
            there = self._loop_clients[loop] = _LoopClient(self._new_client())
        return await there.client()


class _Host:
    """One thread, one loop, one client."""

    def __init__(self, client: AsyncClient) -> None:
        self.loop = asyncio.new_event_loop()
        self._client = client
        self._opening = asyncio.Lock()
        self.thread = Thread(target=self._run, name="holdfast-background", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    async def do(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        async with self._opening:
            await self._client.__aenter__()
        return await work(self._client)

    def close(self, *, at_exit: bool) -> None:
        ended = asyncio.run_coroutine_threadsafe(self._end(at_exit=at_exit), self.loop)
        try:
            ended.result(CLOSE_SECONDS_MAX)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(CLOSE_SECONDS_MAX)

    async def _end(self, *, at_exit: bool) -> None:
        if at_exit:
            self.loop.set_default_executor(_Inline())
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self._client.close()
        if not at_exit:
            await self.loop.shutdown_default_executor()


class _Inline(ThreadPoolExecutor):
    """Runs work at once: when the interpreter ends, no thread may start any more."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class _LoopClient:
    """A client on the loop of a caller. An asynchronous generator holds it, which a loop closes when it
    shuts down."""

    def __init__(self, client: AsyncClient) -> None:
        self._generator = _generator(client)
        self._opening = asyncio.Lock()
        self._client: AsyncClient | None = None

    async def client(self) -> AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await anext(self._generator)
        return self._client


async def _generator(client: AsyncClient) -> AsyncGenerator[AsyncClient, None]:
    async with client:
        yield client


_instances: WeakSet[BackgroundClient] = WeakSet()
_abandoned: list[object] = []
"""What a forked child must neither use nor close nor collect, because its parent uses it."""


def _after_fork() -> None:
    for background in list(_instances):
        _abandoned.append((background._host, background._loop_clients))
        background._reset()


def _at_exit() -> None:
    for background in list(_instances):
        with suppress(Exception):  # the process ends anyway, and acknowledged writes are durable
            background.close(at_exit=True)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
