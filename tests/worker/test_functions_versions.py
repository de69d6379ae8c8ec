"""Two versions of an app on one queue: what the old one does not know waits for the new one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from floor import STORES, Floor, opened

from holdfast.core.catalogue import ReasonCode
from holdfast.core.state import State

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

@app.job(name="send", version=2)
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
def floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    with opened(request.param, tmp_path, OLD) as floor:
        floor.write(OLD, "old")
        floor.write(NEW, "new")
        yield floor


def made_by_new_code(floor: Floor) -> list[list[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", ENQUEUE],
        cwd=floor.folder,
        env={**os.environ, "HOLDFAST_STORE": floor.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line.split() for line in ran.stdout.splitlines()]


def test_a_rolling_deploy_burns_nothing(floor: Floor) -> None:
    floor.worker("w-old", module="old")
    gifts, plain, [later] = made_by_new_code(floor)
    floor.until(gifts[0], lambda job: job.not_understood > 0)
    for job_id in plain:
        floor.succeeded(job_id)

    floor.worker("w-new", module="new")
    jobs = [floor.succeeded(job_id, 60) for job_id in (*gifts, *plain, later)]

    assert [job.result for job in jobs[:10]] == [f"ana-{n} has a cup" for n in range(10)]
    assert jobs[-1].result == "eve has it at noon"
    assert {(job.failures, job.crashes) for job in jobs} == {(0, 0)}
    assert all(job.not_understood for job in jobs[:10])
    assert not any(job.not_understood for job in jobs[10:])
    assert "send given back: w-old does not understand it: send: there is no argument gift" in (
        floor.said("w-old")
    )
    floor.sound()


def test_a_job_of_old_code_waits_for_old_code(floor: Floor) -> None:
    floor.worker("w-new", module="new")
    job_id = floor.enqueue("pack", {"to": "ana", "weight": 2})
    floor.until(job_id, lambda job: job.not_understood > 0)
    assert floor.leave("w-new") == 0
    floor.worker("w-old", module="old")

    job = floor.succeeded(job_id, 60)

    assert (job.result, job.failures) == ("packed by the old one", 0)


def test_a_value_of_another_type_is_parked_at_once(floor: Floor) -> None:
    floor.worker("w-old", module="old")

    job = floor.ended(floor.enqueue("pack", {"to": "ana", "weight": "two"}))

    assert job.dead_letter is not None
    assert job.dead_letter.reason_code is ReasonCode.PARSE_ERROR
    assert (job.attempt, job.not_understood) == (1, 0)


def test_a_worker_that_drains_leaves_what_it_does_not_understand(floor: Floor) -> None:
    strange = floor.enqueue("send", {"to": "ana", "gift": "a cup"})
    known = [floor.enqueue("send", {"to": f"ana-{n}"}) for n in range(3)]

    assert floor.worker("w-old", "--drain", module="old").wait(30) == 0

    job = floor.job(strange)
    assert (job.state, job.failures, job.not_understood) == (State.QUEUED, 0, job.attempt - 1)
    assert [floor.job(one).state for one in known] == [State.SUCCEEDED] * 3
    assert "given back" in floor.said("w-old").splitlines()[-1]
    assert floor.worker("w-new", "--drain", module="new").wait(30) == 0
    assert floor.job(strange).result == "ana has a cup"
