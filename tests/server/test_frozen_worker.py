"""Scenario 9: a worker frozen past its lease is refused by every verb, in both protocols."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.sdk.open import open_local, open_remote
from tests import ROOT
from tests.server.job_v1_client import JobV1Client
from tests.server.server_process import PATIENCE_SECONDS, server_process, sqlite_url

VERBS = ("heartbeat", "publish", "complete")
REFUSED = {"holdfast.v1": "Fenced", "job.v1": "NOT_FOUND"}


@contextmanager
def owner(protocol: str, url: str) -> "Iterator[subprocess.Popen[str]]":
    """A worker that holds the job."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.frozen_worker", protocol, url],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("protocol", REFUSED)
def test_a_worker_that_was_frozen_past_its_lease_changes_nothing(tmp_path: Path, protocol: str) -> None:
    store = sqlite_url(tmp_path)
    with server_process(store, tmp_path, "--poll", "10s") as server:
        job_id = asyncio.run(JobV1Client(server.url).enqueue())
        with owner(protocol, server.url) as frozen:
            assert frozen.stdout is not None
            assert frozen.stdout.readline() == "held\n"
            frozen.send_signal(signal.SIGSTOP)
            asyncio.run(take_over(protocol, server.url, job_id))
            frozen.send_signal(signal.SIGCONT)
            told, _ = frozen.communicate("go on\n", timeout=PATIENCE_SECONDS)

    assert told.splitlines() == [f"{verb} {REFUSED[protocol]}" for verb in VERBS]
    asyncio.run(check(store, protocol, job_id))


async def take_over(protocol: str, url: str, job_id: str) -> None:
    """Get the job once its lease is over, say something and complete it."""
    if protocol == "job.v1":
        clients = JobV1Client(url)
        taken = await clients.taken()
        assert (taken.job.job_id if taken.job else "", taken.attempt) == (job_id, 2)
        await clients.complete(taken.task_token)
        return
    registry = open_remote(url)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (grants := await registry.claim(["default"], owner="worker-9")):
            await registry.changes(timeout=1, ready=True)
    assert [(grant.job_id, grant.attempt) for grant in grants] == [(job_id, 2)]
    await registry.complete(grants[0], Success(result="second"))
    await registry.close()


async def check(store: str, protocol: str, job_id: str) -> None:
    """The result is the second's, nothing of the first was taken, and what it tried is recorded."""
    registry = await open_local(store)
    job = await registry.status(job_id)
    events = (await registry.logs(job_id)).events
    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert job.result == ("second" if protocol == "holdfast.v1" else {"exit_code": 0})
    assert [event for event in events if event.event_class is EventClass.WORKER] == []
    assert sorted(rejected(events)) == sorted(VERBS)
    assert (await registry.verify()).mismatches == ()
    await registry.close()


def rejected(events: tuple[Event, ...]) -> list[str]:
    return [
        str(event.attributes.get("verb"))
        for event in events
        if event.event_type == EventType.STALE_WRITE_REJECTED
    ]
