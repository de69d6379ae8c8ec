"""Objects in front of other objects that are slow, forgetful, in the way, or dead."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from fnmatch import fnmatchcase
from random import Random
from typing import Literal, TypeVar

from holdfast.core.errors import Unavailable
from holdfast.ports import VersionedStore, VersionToken

T = TypeVar("T")

WRITES = ("put", "create_if_absent")


class ForwardingObjects:
    """Objects in front of other objects; `around` is asked for every call."""

    def __init__(self, objects: VersionedStore) -> None:
        self.objects = objects
        self.calls = 0

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        self.calls += 1
        return await call()

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        return await self.around(lambda: self.objects.get(key), verb="get", key=key)

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        return await self.around(lambda: self.objects.put(key, value, version), verb="put", key=key)

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        return await self.around(
            lambda: self.objects.create_if_absent(key, value), verb="create_if_absent", key=key
        )

    async def delete(self, key: str, version: VersionToken) -> bool:
        return await self.around(lambda: self.objects.delete(key, version), verb="delete", key=key)

    async def list_keys(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        return await self.around(
            lambda: self.objects.list_keys(prefix, after=after, limit=limit),
            verb="list_keys",
            key=prefix,
        )


class SlowObjects(ForwardingObjects):
    """Every request and every answer takes its own time."""

    def __init__(self, objects: VersionedStore, random: Random) -> None:
        super().__init__(objects)
        self.random = random

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        await yield_turns(self.random.randrange(4))
        answer = await call()
        await yield_turns(self.random.randrange(4))
        return answer


async def yield_turns(turns: int) -> None:
    """Let the others go first, some number of times."""
    for _ in range(turns):
        await asyncio.sleep(0)


class LostResponses(ForwardingObjects):
    """Does its n-th conditional write, and loses the answer: by a lie, or by an error."""

    def __init__(self, objects: VersionedStore, n: int, *, lie: bool) -> None:
        super().__init__(objects)
        self.n = n
        self.lie = lie

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        answer = await call()
        if verb in WRITES:
            self.calls += 1
            if self.calls == self.n:
                return lose_response(lie=self.lie)  # type: ignore[return-value]
        return answer


def lose_response(*, lie: bool) -> Literal[False]:
    if lie:
        return False
    raise Unavailable("The answer was lost.", applied="unknown")


class OvertakenWrites(ForwardingObjects):
    """Writes over a job's document, and has lost the answer by the time `meanwhile` is over: once."""

    def __init__(self, objects: VersionedStore, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(objects)
        self.meanwhile = meanwhile
        self.lost = 0

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        landed = await self.objects.put(key, value, version)
        if landed and key.endswith("/state.json") and not self.lost:
            self.lost += 1
            await self.meanwhile()
            return False
        return landed


class PausedObjects(ForwardingObjects):
    """Stops before it first writes a job's document by `verb`, until it is let go."""

    def __init__(self, objects: VersionedStore, *, verb: str = "put") -> None:
        super().__init__(objects)
        self.verb = verb
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        if verb == self.verb and key.endswith("/state.json") and not self.waits.is_set():
            self.waits.set()
            await self.go.wait()
        return await call()

    async def catch(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Start some work on these objects, and answer when it has stopped."""
        task = asyncio.create_task(work)
        await self.waits.wait()
        return task


class Crashed(Exception):
    """The process is dead: nothing that it asks for happens any more."""


class CrashingObjects(ForwardingObjects):
    """The process dies with its n-th call, which may still be done (`late`), or not."""

    def __init__(self, objects: VersionedStore, n: int, *, late: bool) -> None:
        super().__init__(objects)
        self.n = n
        self.late = late

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        self.calls += 1
        if self.calls == self.n and self.late:
            await call()
        if self.calls >= self.n:
            raise Crashed
        return await call()


class FailingCreates(ForwardingObjects):
    """Creates no object whose key is like `pattern`: the process dies of it, or fails."""

    def __init__(
        self,
        objects: VersionedStore,
        pattern: str,
        failure: Callable[[], Exception] = Crashed,
    ) -> None:
        super().__init__(objects)
        self.pattern = pattern
        self.failure = failure

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        if verb == "create_if_absent" and fnmatchcase(key, self.pattern):
            raise self.failure()
        return await call()


class ChaoticObjects(SlowObjects):
    """Everything at once: its own time for every call, lost answers, and death."""

    def __init__(self, objects: VersionedStore, random: Random) -> None:
        super().__init__(objects, random)
        self.life = random.randrange(20, 400)

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        self.calls += 1
        if self.calls >= self.life:
            if self.calls == self.life and self.random.random() < 0.5:
                await call()
            raise Crashed
        answer = await super().around(call, verb=verb, key=key)
        if verb in WRITES and self.random.random() < 0.03:
            return lose_response(lie=self.random.random() < 0.5)  # type: ignore[return-value]
        return answer
