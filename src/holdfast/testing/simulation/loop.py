"""An event loop on virtual time, whose callbacks belong to nodes that can be killed and paused."""

import asyncio
import heapq
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import Any, TypeVar

T = TypeVar("T")

TURNS_MAX = 2_000_000
"""A hundred times what a run takes."""

ENDINGS_MAX = 1000
"""How many awaits may follow in the `finally` blocks of one task when a run is over."""


class Ended(BaseException):
    """The end of a run: thrown into every task that is still under way."""


class Node:
    """A machine: what it runs can be frozen or die, and its clock can be wrong.

    A node that is killed runs nothing ever again, not even a `finally`; its restart is a new node.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.deferred: list[Turn] = []
        self.offset = 0.0
        self.rate = 1.0


NODE: ContextVar[Node] = ContextVar("node")


class Turn:
    """A callback of one node, waiting for its turn."""

    __slots__ = ("args", "callback", "context", "dropped", "node", "time")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.node = self.context[NODE]
        self.dropped = False
        self.time = 0.0

    def when(self) -> float:
        return self.time

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped


def virtual_loop(shuffle: Random | None = None) -> "VirtualLoop":
    """Return a loop at time zero, which runs what is ready in the order that `shuffle` decides."""
    return VirtualLoop(shuffle)  # type: ignore[abstract]  # the missing methods are never called


class VirtualLoop(asyncio.AbstractEventLoop):
    """A loop whose time passes only when nothing is ready. What is ready runs in a shuffled order."""

    def __init__(self, shuffle: Random | None) -> None:
        self._shuffle = shuffle
        self._time = 0.0
        self._ready: list[Turn] = []
        self._timers: list[tuple[float, int, Turn]] = []
        self._numbers = 0
        self._over = False
        self._kept: list[tuple[asyncio.Task[Any], Context]] = []
        self.broken: list[str] = []
        self.turns = 0

    def time(self) -> float:
        return self._time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._over

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: object,
    ) -> asyncio.Task[T]:
        """Keep the task until the end: one that is collected would run its `finally` blocks."""
        context = copy_context() if context is None else context
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._kept.append((task, context))
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn(callback, args, context)
        if not self._over:
            self._ready.append(turn)
        return turn

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Turn:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Turn:
        turn = Turn(callback, args, context)
        self._numbers += 1
        turn.time = max(when, self._time)
        if not self._over:
            heapq.heappush(self._timers, (turn.time, self._numbers, turn))
        return turn

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._over:
            self.broken.append(f"{context.get('message')}: {context.get('exception')!r}")

    def start(self, node: Node, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something on a node."""
        context = Context()
        context.run(NODE.set, node)
        return self.create_task(work, context=context)

    def resume(self, node: Node) -> None:
        """Let a paused node go on with everything that was deferred."""
        node.paused = False
        self._ready += node.deferred
        node.deferred = []

    def run(self, until: float, done: Callable[[], bool]) -> None:
        """Run until it is `done`, or until virtual time is up."""
        with self._running():
            while not done():
                if self.turns > TURNS_MAX:
                    self.broken.append("the loop runs on without any time passing")
                while self._timers and self._timers[0][0] <= self._time:
                    self._ready.append(heapq.heappop(self._timers)[2])
                if self._ready:
                    self._round()
                elif not self._timers or self._timers[0][0] > until:
                    self._time = max(self._time, until)
                    return
                else:
                    self._time = self._timers[0][0]

    @contextmanager
    def _running(self) -> Iterator[None]:
        asyncio._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_let_go)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)

    def _round(self) -> None:
        turns, self._ready = self._ready, []
        if self._shuffle is not None and len(turns) > 1:
            self._shuffle.shuffle(turns)
        for turn in turns:
            node = turn.node
            if turn.dropped or not node.alive:
                continue
            if node.paused:
                node.deferred.append(turn)
                continue
            self.turns += 1
            turn.context.run(turn.callback, *turn.args)

    def check_tasks(self) -> None:
        """Count as `broken` every failed task of a living node whose exception was never read.

        Everything that is due at this instant runs first."""
        self.run(self._time, lambda: False)
        for task, context in self._kept:
            if context[NODE].alive and getattr(task, "_log_traceback", False):
                self.broken.append(
                    f"{_name(task)} failed, and its exception was never read: {task.exception()!r}"
                )

    def end(self) -> None:
        """End the run: nothing is scheduled any more, and every task ends where it stands.

        An exception is thrown, since `close` of a coroutine passes over the asynchronous generators
        that it is iterating (in CPython 3.11), and to close them then is an error. Errors on the
        way out are `broken`.
        """
        self._over = True
        with self._running():
            for task, context in self._kept:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    context.run(self._end, task)
                elif not task.cancelled():
                    task.exception()
        self._kept.clear()
        self._ready.clear()
        self._timers.clear()

    def _end(self, task: asyncio.Task[Any]) -> None:
        """Throw into a task until it has ended."""
        work = task.get_coro()
        for _ in range(ENDINGS_MAX):
            try:
                work.throw(Ended())
            except (Ended, StopIteration):
                return
            except BaseException as error:
                self.broken.append(f"{_name(task)} did not end well: {error!r}")
                return
        self.broken.append(f"{_name(task)} does not end")


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "a task")


def _let_go(generator: object) -> None:
    """Do nothing with a generator of a dead node: it ends where it stands."""
