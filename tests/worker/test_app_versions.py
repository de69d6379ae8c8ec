"""Two versions of an app on one queue: a job that the old one does not know waits for the new one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.catalogue import ReasonCode
from holdfast.core.state import State
from tests.worker.function_workers import STORES, FunctionWorkers, open_workers
from tests.worker.live_processes import PATIENCE_SECONDS

OLD = """
@app.job
def send(to: str) -> str:
    return f"{to} has nothing"

@app.job
def pack(to: str, weight: int) -> str:
    return "packed by the old one"

@app.job
def retired() -> str:
    return "still there"
"""
NEW = """
@app.job
def send(to: str, gift: str = "nothing") -> str:
    return f"{to} has {gift}"

@app.job
def pack(to: str, weight: int, colour: str) -> str:
    return "packed by the new one"

@app.job(kind="send", version=2)
def send_again(to: str, at: str) -> str:
    return f"{to} has it at {at}"
"""
ENQUEUE = """
from new import send, send_again
print(*[send.enqueue(f"ana-{n}", gift="a cup").job_id for n in range(10)])
print(*[send.enqueue(f"ben-{n}").job_id for n in range(10)])
print(send_again.enqueue("eve", at="noon").job_id)
"""


@pytest.fixture(params=STORES)
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FunctionWorkers]:
    with open_workers(request.param, tmp_path, OLD) as workers:
        workers.write(OLD, "old")
        workers.write(NEW, "new")
        yield workers


def made_by_new_code(workers: FunctionWorkers) -> list[list[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", ENQUEUE],
        cwd=workers.folder,
        env={**os.environ, "HOLDFAST_STORE": workers.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line.split() for line in ran.stdout.splitlines()]


def test_a_rolling_deploy_burns_nothing(workers: FunctionWorkers) -> None:
    workers.start("w-old", module="old")
    gifts, plain, [later] = made_by_new_code(workers)
    workers.until(gifts[0], lambda job: job.not_understood > 0)
    for job_id in plain:
        workers.succeeded(job_id)

    workers.start("w-new", module="new")
    workers.succeeded(later)
    # Each of the two may be the first to ask for a job that was given back.
    assert workers.leave("w-old") == 0
    jobs = [workers.succeeded(job_id) for job_id in (*gifts, *plain, later)]

    assert [job.result for job in jobs[:10]] == [f"ana-{n} has a cup" for n in range(10)]
    assert jobs[-1].result == "eve has it at noon"
    assert {(job.failures, job.crashes) for job in jobs} == {(0, 0)}
    assert all(job.not_understood for job in jobs[:10])
    assert not any(job.not_understood for job in jobs[10:])
    assert ") given back: w-old does not understand it: send: there is no argument gift" in (
        workers.worker_log("w-old")
    )
    workers.assert_consistent()


def test_a_job_of_old_code_waits_for_old_code(workers: FunctionWorkers) -> None:
    workers.start("w-new", module="new")
    job_id = workers.enqueue("pack", {"to": "ana", "weight": 2})
    workers.until(job_id, lambda job: job.not_understood > 0)
    assert workers.leave("w-new") == 0
    workers.start("w-old", module="old")

    job = workers.succeeded(job_id)

    assert (job.result, job.failures) == ("packed by the old one", 0)


def test_a_value_of_another_type_is_parked_at_once(workers: FunctionWorkers) -> None:
    workers.start("w-old", module="old")

    job = workers.ended(workers.enqueue("pack", {"to": "ana", "weight": "two"}))

    assert job.dead_letter is not None
    assert job.dead_letter.reason_code is ReasonCode.PARSE_ERROR
    assert (job.attempt, job.not_understood) == (1, 0)


def test_a_worker_that_drains_leaves_what_it_does_not_understand(workers: FunctionWorkers) -> None:
    strange = workers.enqueue("send", {"to": "ana", "gift": "a cup"})
    known = [workers.enqueue("send", {"to": f"ana-{n}"}) for n in range(3)]

    assert workers.start("w-old", "--drain", module="old").wait(PATIENCE_SECONDS) == 0

    job = workers.job(strange)
    assert (job.state, job.failures, job.not_understood) == (State.QUEUED, 0, job.attempt - 1)
    assert [workers.job(one).state for one in known] == [State.SUCCEEDED] * 3
    assert "given back" in workers.worker_log("w-old").splitlines()[-1]
    assert workers.start("w-new", "--drain", module="new").wait(PATIENCE_SECONDS) == 0
    assert workers.job(strange).result == "ana has a cup"
