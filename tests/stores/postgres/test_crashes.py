"""Crashes: of the server under load, and of its clients at any point. Nothing acknowledged is lost.

`python -m verify.postgres_faults` is the long form.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres.sessions import SETTINGS
from tests.stores.postgres.running_server import MAJOR, fresh_url
from verify.kills import failpoints
from verify.kills_runs import Case, kill_at_failpoints
from verify.postgres_fault_runs import FAULTS, TERMINATE, child, hear, kept, outages, tell
from verify.postgres_race_runs import PostgresProcesses, SlowLoad, deaths, rehearse
from verify.postgres_server import PostgresServer

IDLE_SECONDS = float(SETTINGS["idle_in_transaction_session_timeout"].removesuffix("s"))
LITTLE_SECONDS = 2.0
RECOVERY_SECONDS_MAX = 5.0
RANDOM_KILLS = 20
SEED = 28


@pytest.fixture(scope="module")
def processes() -> Iterator[PostgresProcesses]:
    with (
        PostgresServer(MAJOR, fast=True, settings={"max_connections": "200"}) as server,
        PostgresProcesses(server).at_home() as processes,
    ):
        yield processes


@pytest.mark.slow
def test_clients_outlive_every_restart_and_crash_of_their_server_and_nothing_told_is_lost(
    tmp_path: Path,
) -> None:
    server = PostgresServer(MAJOR, settings={"synchronous_commit": "off"})  # the store's is on

    found = outages(server, tmp_path, FAULTS, jobs=40)

    assert found.violations == []
    assert found.equal
    assert found.answered > 500
    assert [fault.name for fault in found.faults] == list(FAULTS)
    for fault in found.faults:
        assert found.recovery_seconds(fault) < RECOVERY_SECONDS_MAX, fault


async def test_a_session_that_is_being_ended_by_the_server_is_replaced_whenever_it_is_noticed(
    processes: PostgresProcesses, tmp_path: Path
) -> None:
    """The last words of the server, and the end of the connection, come one after the other."""

    registry = await open_registry(processes.url(tmp_path / "ended"))
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    for turns in range(8):
        processes.server.sql(TERMINATE)
        stand_still(0.05)  # until all of it lies in the socket
        for _ in range(turns):
            await asyncio.sleep(0)
        assert (await registry.status("job-1")).version == 1
    await registry.close()


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.slow
def test_a_client_that_acknowledges_before_the_commit_is_found_out(tmp_path: Path) -> None:
    found = outages(PostgresServer(MAJOR), tmp_path, ["kill"], jobs=10, early=True)

    assert {violation.invariant for violation in found.violations} == {"I11"}
    assert all(violation.job_id.startswith("early-") for violation in found.violations)


@pytest.mark.slow
async def test_a_job_locked_by_a_frozen_client_is_claimed_by_another_before_long(
    tmp_path: Path,
) -> None:
    url = await fresh_url(tmp_path)
    frozen = child("freeze", url, "2")  # the first look is for leases that have lapsed

    with kept([frozen]):
        assert await asyncio.to_thread(hear, frozen) == "ready"
        registry = await open_registry(url)
        await registry.enqueue(JobRequest(spec=Spec(), job_id="wanted"), actor="user:ana")
        tell(frozen, "go")
        assert await asyncio.to_thread(hear, frozen) == "frozen"
        await asyncio.to_thread(os.waitpid, frozen.pid, os.WUNTRACED)
        started = time.monotonic()
        assert await registry.claim(["default"], owner="another") == []  # it is locked
        while not (grants := await registry.claim(["default"], owner="another")):
            assert time.monotonic() < started + IDLE_SECONDS + LITTLE_SECONDS
            await asyncio.sleep(0.05)
        waited = time.monotonic() - started
        assert [grant.job_id for grant in grants] == ["wanted"]
        os.kill(frozen.pid, signal.SIGCONT)
        assert await asyncio.to_thread(hear, frozen) == "claimed"  # nothing, and no error
        assert await asyncio.to_thread(hear, frozen) == "went on with afterwards"
        events = [str(event.event_type) for event in await registry.history("wanted")]
        assert events == ["job_queued", "job_claimed"]
        await registry.close()
        assert await asyncio.to_thread(frozen.wait, 10) == 0

    assert waited > IDLE_SECONDS / 2  # it was the server that ended the frozen session


@pytest.mark.slow
def test_a_client_killed_at_any_failpoint_loses_nothing_and_others_finish_its_work(
    processes: PostgresProcesses, tmp_path: Path
) -> None:
    passed = rehearse(processes, tmp_path)
    cases = deaths(passed)

    tally = kill_at_failpoints(processes, tmp_path, cases)

    assert {case.failpoint for case in cases} == {
        name for name in failpoints() if name.startswith("postgres.")
    }
    assert tally.lost == []
    assert tally.wrong == []
    assert tally.kills == len(cases)


@pytest.mark.slow
def test_clients_killed_at_random_under_load_lose_nothing_and_all_jobs_end(
    processes: PostgresProcesses, tmp_path: Path
) -> None:
    """Scenario 28: every transition has its one event, wherever the process died."""
    load = SlowLoad(processes, tmp_path / "load", SEED)

    load.run(RANDOM_KILLS)

    assert load.tally.lost == []
    assert load.tally.wrong == []
    assert load.tally.kills == RANDOM_KILLS
    assert load.tally.crashes > 0  # the kills hit work


@pytest.mark.slow
def test_a_client_that_acknowledges_too_early_and_is_killed_is_found_out(
    processes: PostgresProcesses, tmp_path: Path
) -> None:
    tally = kill_at_failpoints(processes, tmp_path, [Case("life", "postgres.decided", 2, early=True)])

    assert any("done b queued 1" in loss for loss in tally.lost), tally.lost
    assert tally.wrong == []
