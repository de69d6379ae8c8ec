"""The way from a node to its store: slow, lossy, and sometimes cut."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.testing.simulation.loop import NODE, Node, VirtualLoop

T = TypeVar("T")

PATIENCE_SECONDS = 2.0


class Weather:
    """Which faults may strike a request, and how often; nothing strikes once it has cleared."""

    def __init__(self, faults: tuple[str, ...], rates: dict[str, float], chance: Random) -> None:
        self._faults = frozenset(faults)
        self._rates = rates
        self.chance = chance
        self.bad = True
        self.struck: dict[str, int] = {}

    def strikes(self, fault: str) -> bool:
        """Whether this fault happens now."""
        if not self.bad or fault not in self._faults:
            return False
        if self.chance.random() >= self._rates[fault]:
            return False
        self.count(fault)
        return True

    def count(self, fault: str) -> None:
        self.struck[fault] = self.struck.get(fault, 0) + 1

    def delay(self) -> float:
        if self.strikes("slow"):
            return self.chance.uniform(0.3, 4.0)
        return self.chance.uniform(0.0002, 0.01)


class Link:
    """One node's connection. What is sent lands (or not) whether or not the sender lives on."""

    def __init__(self, loop: VirtualLoop, server: Node, weather: Weather) -> None:
        self._loop = loop
        self._weather = weather
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
        """Ask the server. A write may land without an answer; `denial` is what a library's own
        repeat of a write that had landed would get for an answer."""
        weather = self._weather
        answer: asyncio.Future[T] = self._loop.create_future()
        if not NODE.get().alive:
            return await answer  # the dead send nothing, and hear nothing
        if self.cut or weather.strikes("refused"):
            self._later(weather.delay(), _fail, answer, _unavailable("no"))
        elif not writes:
            self._later(weather.delay(), self._serve, serve, answer)
        elif weather.strikes("lost"):
            if weather.chance.random() < 0.5:
                self._later(weather.delay(), self._serve, serve, None)
            self._later(PATIENCE_SECONDS, _fail, answer, _unavailable("unknown"))
        elif weather.strikes("late"):
            self._later(weather.chance.uniform(2.0, 9.0), self._serve, serve, None)
            self._later(PATIENCE_SECONDS, _fail, answer, _unavailable("unknown"))
        elif denial is not None and weather.strikes("denied"):
            self._later(weather.delay(), self._serve, serve, None)
            self._later(PATIENCE_SECONDS, _answer, answer, denial)
        else:
            self._later(weather.delay(), self._serve, serve, answer)
        return await answer

    def _later(self, seconds: float, callback: Callable[..., None], *args: object) -> None:
        self._loop.call_later(seconds, callback, *args, context=self._context)

    def _serve(
        self, serve: Callable[[], Coroutine[Any, Any, T]], answer: "asyncio.Future[T] | None"
    ) -> None:
        try:
            result = at_once(serve())
        except HoldfastError as error:
            if answer is not None:
                self._later(self._weather.delay(), _fail, answer, error)
        else:
            if answer is not None:
                self._later(self._weather.delay(), _answer, answer, result)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that waits for nothing but its turn."""
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
    return Unavailable("The store did not answer.", applied=applied)
