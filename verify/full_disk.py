"""A disk that is full, for real: filled under load, then freed, while one process goes on."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.core.errors import NotFound, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from verify.environment import damage

T = TypeVar("T")

SUBMITTERS, WORKERS = 4, 2
ROOM_BYTES = 3 * 1024 * 1024
REFUSALS_UNTIL_FREED = 60
AFTER_FREED = 25
SECONDS_MAX = 60.0
SPEC = Spec(payload=msgspec.Raw(b'"' + b"x" * 8_000 + b'"'))


@dataclass
class Filled:
    """What happened on one disk."""

    kind: str
    refused: int = 0
    before: int = 0
    after: int = 0
    troubles: list[str] = field(default_factory=list)


class Load:
    """Submitters and workers that send again what was refused, as they are told to."""

    def __init__(self, registry: Registry, ballast: Path, filled: Filled) -> None:
        self._registry = registry
        self._ballast = ballast
        self._filled = filled
        self._done = False
        self.enqueued: list[str] = []
        self.completed: list[str] = []

    async def run(self) -> None:
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            for n in range(WORKERS):
                group.create_task(self._work(f"w-{n}"))
            async with asyncio.TaskGroup() as submitters:
                for n in range(SUBMITTERS):
                    submitters.create_task(self._submit(f"s{n}"))
            self._done = True

    async def _submit(self, name: str) -> None:
        since_freed = number = 0
        while since_freed < AFTER_FREED:
            job_id, number = f"{name}-{number}", number + 1
            freed = not self._ballast.exists()
            await self._again(partial(self._enqueue, JobRequest(spec=SPEC, job_id=job_id)))
            self.enqueued.append(job_id)
            self._filled.before += not freed
            self._filled.after += freed
            since_freed += freed

    async def _enqueue(self, request: JobRequest) -> None:
        """Enqueue; of what is refused as not applied, nothing may be there."""
        try:
            await self._registry.enqueue(request, actor="user:ana")
        except Unavailable as error:
            if error.applied == "no" and await self._is_there(request.job_id or ""):
                self._filled.troubles.append(f"{request.job_id} was refused, but is there")
            raise

    async def _is_there(self, job_id: str) -> bool:
        try:
            await self._registry.status(job_id)
        except NotFound:
            return False
        return True

    async def _work(self, owner: str) -> None:
        number = 0
        while not self._done:
            number += 1
            op_id = f"claim-{owner}-{number}"
            claim = partial(self._registry.claim, ["default"], owner=owner, op_id=op_id)
            grants = await self._again(claim)
            for grant in grants:
                await self._again(partial(self._registry.complete, grant, Success(), op_id=op_id))
                self.completed.append(grant.job_id)
            if not grants:
                await asyncio.sleep(0.002)

    async def _again(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send the same request until it is answered; free the disk when it was full for long."""
        while True:
            try:
                return await send()
            except Unavailable as error:
                self._filled.refused += 1
                if "is full; nothing was written" not in error.message:
                    self._filled.troubles.append(f"a full disk was called: {error.message}")
                if self._filled.refused >= REFUSALS_UNTIL_FREED:
                    self._ballast.unlink(missing_ok=True)
                await asyncio.sleep(0.002)


async def fill(folder: Path, kind: str) -> Filled:
    """Fill the disk under the folder, free it, and see what is there of what was acknowledged."""
    filled = Filled(kind)
    ballast = folder / "ballast"
    _leave(ROOM_BYTES, ballast)
    path = folder / "jobs.db"
    registry = await open_registry(f"sqlite:///{path}")
    load = Load(registry, ballast, filled)
    try:
        await load.run()
    except TimeoutError:
        filled.troubles.append(f"the process did not go on within {SECONDS_MAX:.0f} s")
    finally:
        await registry.close()
    filled.troubles += await _contradictions(path, load)
    return filled


def _leave(room_bytes: int, ballast: Path) -> None:
    """Fill the disk up to so much room."""
    with ballast.open("wb") as file:
        while True:
            space = os.statvfs(ballast)
            surplus = space.f_bavail * space.f_frsize - room_bytes
            if surplus <= 0:
                return
            file.write(bytes(min(surplus, 256 * 1024)))
            file.flush()
            os.fsync(file.fileno())


async def _contradictions(path: Path, load: Load) -> list[str]:
    found: list[str] = []
    registry = await open_registry(f"sqlite:///{path}")
    try:
        jobs = {j.job_id: j for j in await registry.status_many(load.enqueued) if j is not None}
        found += [f"{j} was enqueued, but is not there" for j in load.enqueued if j not in jobs]
        ended = {job_id for job_id, job in jobs.items() if job.ended}
        found += [f"{j} was completed, but is not" for j in load.completed if j not in ended]
        if not (await registry.verify()).equal:
            found.append("log and state differ")
    finally:
        await registry.close()
    return found + damage(path)
