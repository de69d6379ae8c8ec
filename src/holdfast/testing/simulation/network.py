"""The network from a node to its store: slow, lossy, and sometimes cut."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.testing.simulation.loop import NODE, Node, VirtualLoop

T = TypeVar("T")

PATIENCE_SECONDS = 2.0


class FaultInjector:
    """Decides which faults happen to a request, by their rates; none once it is not active."""

    def __init__(self, faults: tuple[str, ...], rates: dict[str, float], chance: Random) -> None:
        self._faults = frozenset(faults)
        self._rates = rates
        self.chance = chance
        self.active = True
        self.counts: dict[str, int] = {}

    def happens(self, fault: str) -> bool:
        """Return whether this fault happens now, and count it."""
        if not self.active or fault not in self._faults:
            return False
        if self.chance.random() >= self._rates[fault]:
            return False
        self.count(fault)
        return True

    def count(self, fault: str) -> None:
        self.counts[fault] = self.counts.get(fault, 0) + 1

    def delay(self) -> float:
        if self.happens("slow"):
            return self.chance.uniform(0.3, 4.0)
        return self.chance.uniform(0.0002, 0.01)


class NetworkLink:
    """The link of one node. A request that was sent is served even if its sender dies."""

    def __init__(self, loop: VirtualLoop, server: Node, injector: FaultInjector) -> None:
        self._loop = loop
        self._injector = injector
        self._context = Context()
        self._context.run(NODE.set, server)
        self.cut = False

    async def call(
        self,
        serve: Callable[[], Coroutine[Any, Any, T]],
        *,
        writes: bool = False,
        denial: T | None = None,
    ) -> T:
        """Call the server. A write may be applied without a response; `denial` is the response that a
        library's own repeat of an applied write would get."""
        injector = self._injector
        answer: asyncio.Future[T] = self._loop.create_future()
        if not NODE.get().alive:
            return await answer  # a dead node sends and receives nothing
        if self.cut or injector.happens("refused"):
            self._later(injector.delay(), _fail, answer, _unavailable("no"))
        elif not writes:
            self._later(injector.delay(), self._serve, serve, answer)
        elif injector.happens("lost"):
            if injector.chance.random() < 0.5:
                self._later(injector.delay(), self._serve, serve, None)
            self._later(PATIENCE_SECONDS, _fail, answer, _unavailable("unknown"))
        elif injector.happens("late"):
            self._later(injector.chance.uniform(2.0, 9.0), self._serve, serve, None)
            self._later(PATIENCE_SECONDS, _fail, answer, _unavailable("unknown"))
        elif denial is not None and injector.happens("denied"):
            self._later(injector.delay(), self._serve, serve, None)
            self._later(PATIENCE_SECONDS, _answer, answer, denial)
        else:
            self._later(injector.delay(), self._serve, serve, answer)
        return await answer

    def _later(self, seconds: float, callback: Callable[..., None], *args: object) -> None:
        self._loop.call_later(seconds, callback, *args, context=self._context)

    def _serve(self, serve: Callable[[], Coroutine[Any, Any, T]], answer: "asyncio.Future[T] | None") -> None:
        try:
            result = at_once(serve())
        except HoldfastError as error:
            if answer is not None:
                self._later(self._injector.delay(), _fail, answer, error)
        else:
            if answer is not None:
                self._later(self._injector.delay(), _answer, answer, result)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits for anything but its turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def _answer(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: HoldfastError) -> None:
    if not answer.done():
        answer.set_exception(error)


def _unavailable(applied: Any) -> Unavailable:
    return Unavailable("The store did not respond.", applied=applied)
