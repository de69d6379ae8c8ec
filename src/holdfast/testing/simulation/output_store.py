"""The simulated output store: which attempt wrote what, and when each output was there."""

from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import TypeAlias

import msgspec

from holdfast.core.errors import Unavailable
from holdfast.core.outputs import OutputPromise
from holdfast.outputs.lazy import LazyOutputs
from holdfast.outputs.managed import CompletionMark, file_path, mark_path
from holdfast.ports import Clock, Digest, Grant, Outputs
from holdfast.testing.simulation.network import NetworkLink
from holdfast.testing.simulation.plan import TROUBLE_SECONDS

STORE = "store-1"

Key: TypeAlias = tuple[str, int, str]
"""An output: its job, the token of the attempt that wrote it, and its name."""


def promise_of(chance: Random) -> OutputPromise:
    """Return the outputs that a job promises."""
    return OutputPromise(names=tuple(f"out-{n}" for n in range(chance.randint(1, 3))), store=STORE)


class FakeOutputStore:
    """The outputs. The store is unavailable now and then, while there are faults."""

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

    def write_outputs(self, grant: Grant, chance: Random) -> None:
        """Write the outputs of an attempt: most at once, some late, some never, or in part."""
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
        mark = CompletionMark(*key, len(body), sha256(body).hexdigest())
        self._bodies[file_path(*key)] = body
        self._bodies[mark_path(*key)] = msgspec.json.encode(mark)
        if not self._whole(key):
            self._there.setdefault(key, []).append((self._time(), float("inf")))

    def corrupt(self, chance: Random) -> None:
        """Delete an output, or change its contents."""
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
        """Return whether one of these outputs was there at any time since `start`, and since its own
        time."""
        return any(end >= max(start, counts) for end, counts in self._ends(keys))

    def was_missing(self, keys: dict[Key, float], start: float) -> bool:
        """Return whether at any time since `start` none of these outputs was there."""
        covered = start
        for since, end in sorted(self._spells(keys)):
            if since > covered:
                return True
            covered = max(covered, end)
        return covered < self._time()

    def _ends(self, keys: dict[Key, float]) -> list[tuple[float, float]]:
        return [(end, counts) for key, counts in keys.items() for _, end in self._there.get(key, ())]

    def _spells(self, keys: dict[Key, float]) -> list[tuple[float, float]]:
        return [
            (max(since, counts), end)
            for key, counts in keys.items()
            for since, end in self._there.get(key, ())
        ]

    def delay(self) -> float:
        """Return how long a read takes: sometimes long enough for the reader to die."""
        return self._chance.uniform(0.2, 4) if self._chance.random() < 0.3 else 0.0

    async def check_available(self) -> None:
        if any(start <= self._time() < end for start, end in self._outages):
            raise Unavailable("The output store is unavailable.")

    async def bodies(self, paths: Sequence[str]) -> list[bytes | None]:
        await self.check_available()
        return [self._bodies.get(path) for path in paths]


class OutputsConnection:
    """The output store as one node reaches it, over its link."""

    store_id = STORE
    place = "fake://"

    def __init__(self, output_store: FakeOutputStore, link: NetworkLink, clock: Clock) -> None:
        self._output_store = output_store
        self._link = link
        self._clock = clock

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        await self._clock.sleep(self._output_store.delay())
        return await self._link.call(lambda: self._output_store.bodies(paths))

    async def digests(self, paths: Sequence[str]) -> list[Digest | None]:
        bodies = await self.get_many(paths)
        return [None if body is None else Digest(len(body), sha256(body).hexdigest()) for body in bodies]

    async def check_available(self) -> None:
        await self._link.call(self._output_store.check_available)

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


class ConnectedOutputs(LazyOutputs):
    """The output store, as a worker opens it."""

    def __init__(self, outputs: OutputsConnection) -> None:
        super().__init__()
        self._outputs = outputs

    async def get(self, *, create: bool = False) -> Outputs | None:
        return self._outputs
