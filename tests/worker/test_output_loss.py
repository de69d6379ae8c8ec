"""Output that a worker took and can no longer read is on the record of its job."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import Unavailable
from holdfast.core.explanation import describe_flaws
from holdfast.core.job import Flaws, Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.system import SystemClock
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import AttemptOutput
from holdfast.worker.spool import FileSpool


class AbsentRegistry:
    """A registry that takes nothing until it is back."""

    def __init__(self, registry: LocalRegistry) -> None:
        self._registry = registry
        self.back = False
        self.asked = asyncio.Event()

    async def publish(self, grant: object, events: object) -> Job:
        self.asked.set()
        if not self.back:
            raise Unavailable("away")
        return await self._registry.publish(grant, events)  # type: ignore[arg-type]


async def run_attempt(
    registry: LocalRegistry, tmp_path: Path, damage: Callable[[Path], None], *, after: bool
) -> tuple[Job, list[str], bytes]:
    """The job whose spool is damaged while its server is away; `after` says whether it goes on to talk."""
    job = await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    clock = SystemClock()
    hold = HeldJob(await registry.acquire(job.job_id, owner="w-1"), clock.monotonic() + 60)
    away, spool = AbsentRegistry(registry), FileSpool(tmp_path, "w-1")
    output = AttemptOutput(away, clock, hold, spool.log(hold))  # type: ignore[arg-type]
    output.write(b"first\n", "stdout")
    await away.asked.wait()
    output.write(b"second\n" * 20, "stdout")
    output.write(b"third\n", "stdout")
    damage(spool.folder / f"{job.job_id}.1")
    if after:
        output.write(b"fourth\n", "stdout")
    away.back = True
    output.seal(b"")
    await output.flush()
    assert hold.lost is None
    assert not output.full
    await output.close()
    spool.close()
    done = await registry.complete(hold.grant, Success())
    page = await registry.logs(job.job_id)
    told = [event for event in page.events if event.sequence is not None]
    words = [
        str(event.attributes["error_message"])
        for event in told
        if event.event_type == WorkerEventType.PROCESS_ERROR
    ]
    return done, words, b"".join(event.data or b"" for event in told)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def flipped(path: Path) -> None:
    data = path.read_bytes().replace(b"third", b"thorn")
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "lost", "kept"),
    [(emptied, 2, b""), (torn, 1, b"second\n" * 20), (flipped, 1, b"second\n" * 20)],
)
async def test_the_last_words_of_a_job_are_not_lost_without_a_word(
    tmp_path: Path, damage: Callable[[Path], None], lost: int, kept: bytes
) -> None:
    registry = await open_local("memory://")
    job, words, output = await run_attempt(registry, tmp_path, damage, after=False)

    assert output == b"first\n" + kept
    assert job.flaws == Flaws(missed=lost)
    assert "never arrived" in describe_flaws(job)[0]
    assert len(words) == 1
    assert words[0].startswith("1 event of" if lost == 1 else f"{lost} events of")
    await registry.close()


async def test_what_is_said_before_the_damage_is_found_is_counted_with_it(tmp_path: Path) -> None:
    registry = await open_local("memory://")
    job, words, output = await run_attempt(registry, tmp_path, emptied, after=True)

    assert output == b"first\n"
    assert job.flaws == Flaws(missed=3)
    assert len(words) == 1
    await registry.close()
