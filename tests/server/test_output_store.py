"""The output store of a server: opened when it is needed, and done without while it is away."""

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.core.errors import Conflict, Unavailable
from holdfast.core.outputs import OutputPromise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.server import server_outputs
from holdfast.server.server_outputs import ServerOutputs
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.errors import STORE_UNAVAILABLE
from holdfast.wire.remote_inspector import RemoteInspector
from tests.server.outputs_server import HELD_SECONDS, QUEUE, OutputsServer, lines, tasks
from tests.server.running_server import serving


async def test_a_sweep_that_fails_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.server")

    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    tries = 0

    async def opening(_: bool) -> DirectoryOutputs:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Unavailable("nfs://secret-host does not answer")
        if tries == 2:
            raise ZeroDivisionError("secret")
        return await DirectoryOutputs.open(tmp_path / "outputs", create=True)

    server = ServerOutputs(registry, clock, ids, opening)
    for _ in range(4):
        assert await server.sweep() == 0
    await server.close()
    await registry.close()

    assert tries == 3

    assert caplog.messages == [
        "the output store cannot be seen: nfs://secret-host does not answer",
        "the sweep for unvalidated outputs failed: ZeroDivisionError",
        "the output store is seen again",
    ]
    assert [one.levelno for one in caplog.records] == [
        logging.WARNING,
        logging.ERROR,
        logging.INFO,
    ]


async def test_a_server_opens_the_store_anew_when_another_is_in_its_place(
    tmp_path: Path, with_outputs: OutputsServer
) -> None:
    """A folder that was not mounted yet: what was there before is not what jobs have promised."""
    bare, mounted = tmp_path / "place", tmp_path / "disk"
    for folder in (bare, mounted):
        await (await DirectoryOutputs.open(folder, create=True)).close()
    right = await DirectoryOutputs.open(mounted, create=False)

    async def opening(_: bool) -> DirectoryOutputs:
        return await DirectoryOutputs.open(bare, create=False)

    server = ServerOutputs(with_outputs.registry, with_outputs.clock, SystemIds(), opening)
    job = await with_outputs.enqueue(OutputPromise(names=("curve",), store=right.store_id))
    await with_outputs.run(job)
    with_outputs.clock.advance(3600)
    before = await server.sweep()
    bare.rename(tmp_path / "bare")
    mounted.rename(bare)
    with_outputs.clock.advance(3600)
    noticed = await server.sweep()
    after = await server.sweep()
    await server.close()
    await right.close()

    assert (before, noticed, after) == (0, 0, 1)
    assert (await with_outputs.registry.status(job.job_id)).state is State.FAILED


async def test_an_output_store_that_does_not_answer_keeps_nobody_waiting_for_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_outputs, "OPEN_SECONDS", 0.05)

    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)

    async def opening(_: bool) -> DirectoryOutputs:
        async with asyncio.timeout(HELD_SECONDS):
            await asyncio.Event().wait()
        raise AssertionError

    server = ServerOutputs(registry, clock, ids, opening)
    [job] = await server.submit([JobRequest(spec=Spec())], actor="user:ana")
    await registry.close()

    assert job.state is State.QUEUED


async def test_a_server_without_an_output_store_says_so(tmp_path: Path) -> None:
    ids = SystemIds()
    registry = LocalRegistry(MemoryStore(ManualClock(), ids), ids)
    async with serving(registry) as served:
        remote = served.remote()
        inspector = RemoteInspector(remote.connection)
        spec = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(names=("a",), store="x"))
        job = await inspector.submit(JobRequest(spec=spec), actor="user:ana")
        nameless = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(names=("a",)))
        for ask in (
            inspector.list_outputs(job.job_id),
            inspector.validate(job.job_id, actor="user:ana"),
            inspector.resume(job.job_id, actor="user:ana"),
            inspector.store_manifest(lines(tasks())),
            inspector.submit(JobRequest(spec=nameless), actor="user:ana"),
        ):
            with pytest.raises(Conflict, match="start it with --outputs"):
                await ask
        await remote.close()
    await registry.close()

    assert job.state is State.QUEUED


async def test_an_output_store_that_cannot_be_opened_is_tried_again_and_not_spoken_about(
    tmp_path: Path,
) -> None:
    ids = SystemIds()
    registry = LocalRegistry(MemoryStore(ManualClock(), ids), ids)
    mounted = False

    async def opening(_: bool) -> DirectoryOutputs:
        if not mounted:
            raise Unavailable("/mnt/secret is not mounted")
        return await DirectoryOutputs.open(tmp_path / "outputs", create=True)

    async with serving(registry, None, opening) as served:
        remote = served.remote()
        inspector = RemoteInspector(remote.connection)
        with pytest.raises(Unavailable) as caught:
            await inspector.store_manifest(lines(tasks()))
        spec = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(names=("a",), store="x"))
        made = await inspector.submit(JobRequest(spec=spec), actor="user:ana")
        mounted = True
        _, count = await inspector.store_manifest(lines(tasks()))
        await remote.close()
    await registry.close()

    assert (caught.value.message, count) == (STORE_UNAVAILABLE, 3)
    assert made.state is State.QUEUED
