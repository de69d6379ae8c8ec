"""The simulated output store: who has left what on it, and when each output was there to be seen."""

from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import TypeAlias

import msgspec

from holdfast.core.errors import Unavailable
from holdfast.core.outputs import Promise
from holdfast.outputs.lazily import LazyOutputs
from holdfast.outputs.managed import Mark, file_path, mark_path
from holdfast.ports import Clock, Digest, Grant, Outputs
from holdfast.testing.simulation.link import Link
from holdfast.testing.simulation.plan import TROUBLE_SECONDS

STORE = "shelf-1"

Key: TypeAlias = tuple[str, int, str]
"""An output: its job, the token of the attempt that wrote it, and its name."""


def promise_of(chance: Random) -> Promise:
    """What a job promises to leave behind."""
    return Promise(names=tuple(f"out-{n}" for n in range(chance.randint(1, 3))), store=STORE)


class Shelf:
    """What is on it. It is out of reach now and then, while there is trouble."""

    def __init__(
        self,
        chance: Random,
        time: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._chance = chance
        self._time = time
        self._later = later
        self._bodies: dict[str, bytes] = {}
        self._there: dict[Key, list[tuple[float, float]]] = {}
        self._outages = [
            (start, start + chance.uniform(1, 8))
            for start in (chance.uniform(0, TROUBLE_SECONDS) for _ in range(chance.randint(0, 3)))
        ]

    def work(self, grant: Grant, chance: Random) -> None:
        """What an attempt leaves behind: most of it at once, some of it late, some never, or torn."""
        promise = grant.job.spec.outputs
        for name in promise.names if promise else ():
            key = (grant.job_id, grant.fencing_token, name)
            draw = chance.random()
            if draw < 0.6:
                self.write(key)
            elif draw < 0.8:
                self._later(chance.uniform(0.3, 8), lambda key=key: self.write(key))  # type: ignore[misc]
            elif draw < 0.85 and not self._whole(key):
                self._bodies[file_path(*key)] = b"half"

    def write(self, key: Key) -> None:
        body = "/".join(map(str, key)).encode()
        mark = Mark(*key, len(body), sha256(body).hexdigest())
        self._bodies[file_path(*key)] = body
        self._bodies[mark_path(*key)] = msgspec.json.encode(mark)
        if not self._whole(key):
            self._there.setdefault(key, []).append((self._time(), float("inf")))

    def spoil(self, chance: Random) -> None:
        """Somebody deletes an output, or flips a bit in it."""
        whole = [key for key in self._there if self._whole(key)]
        if not whole:
            return
        key = chance.choice(whole)
        if chance.random() < 0.5:
            del self._bodies[file_path(*key)]
        else:
            self._bodies[file_path(*key)] = b"flipped"
        since, _ = self._there[key].pop()
        self._there[key].append((since, self._time()))

    def _whole(self, key: Key) -> bool:
        spells = self._there.get(key, [])
        return bool(spells) and spells[-1][1] == float("inf")

    def was_there(self, keys: dict[Key, float], start: float) -> bool:
        """Whether one of these outputs could be seen at any time since `start`. Each counts from its
        own instant on."""
        return any(end >= max(start, counts) for end, counts in self._ends(keys))

    def was_missing(self, keys: dict[Key, float], start: float) -> bool:
        """Whether at any time since `start` none of these outputs could be seen."""
        covered = start
        for since, end in sorted(self._spells(keys)):
            if since > covered:
                return True
            covered = max(covered, end)
        return covered < self._time()

    def _ends(self, keys: dict[Key, float]) -> list[tuple[float, float]]:
        return [
            (end, counts) for key, counts in keys.items() for _, end in self._there.get(key, ())
        ]

    def _spells(self, keys: dict[Key, float]) -> list[tuple[float, float]]:
        return [
            (max(since, counts), end)
            for key, counts in keys.items()
            for since, end in self._there.get(key, ())
        ]

    def dawdle(self) -> float:
        """How long it takes to see something: long enough to die meanwhile."""
        return self._chance.uniform(0.2, 4) if self._chance.random() < 0.3 else 0.0

    async def reach(self) -> None:
        if any(start <= self._time() < end for start, end in self._outages):
            raise Unavailable("The shelf is out of reach.")

    async def bodies(self, paths: Sequence[str]) -> list[bytes | None]:
        await self.reach()
        return [self._bodies.get(path) for path in paths]


class Shelves:
    """One node's view of the shelf, over its link: what the product takes for an output store."""

    store_id = STORE
    place = "shelf://"

    def __init__(self, shelf: Shelf, link: Link, clock: Clock) -> None:
        self._shelf = shelf
        self._link = link
        self._clock = clock

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        await self._clock.sleep(self._shelf.dawdle())
        return await self._link.call(lambda: self._shelf.bodies(paths))

    async def digests(self, paths: Sequence[str]) -> list[Digest | None]:
        bodies = await self.get_many(paths)
        return [
            None if body is None else Digest(len(body), sha256(body).hexdigest()) for body in bodies
        ]

    async def verify(self) -> None:
        await self._link.call(self._shelf.reach)

    async def close(self) -> None: ...

    async def get(self, path: str) -> bytes | None:
        [body] = await self.get_many([path])
        return body

    async def put(self, path: str, body: bytes) -> None:
        raise NotImplementedError

    async def create(self, path: str, body: bytes) -> bool:
        raise NotImplementedError

    async def put_file(self, path: str, source: Path) -> None:
        raise NotImplementedError

    async def delete(self, path: str) -> None:
        raise NotImplementedError

    def read(self, path: str) -> AsyncIterator[bytes]:
        raise NotImplementedError

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        raise NotImplementedError


class Mounted(LazyOutputs):
    """The shelf, as a worker is given it."""

    def __init__(self, shelves: Shelves) -> None:
        super().__init__()
        self._shelves = shelves

    async def get(self, *, create: bool = False) -> Outputs | None:
        return self._shelves
