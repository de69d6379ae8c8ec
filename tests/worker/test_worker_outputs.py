"""Real workers and promised outputs: functions of every kind, commands, and stores they cannot see."""

import asyncio
import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from floor import QUICK, STORES, Floor, opened, patient

from holdfast import Client, File, Job, State, command, study
from holdfast.outputs.opening import open_outputs
from holdfast.system import machine

APP = """
NAMES = ("model.bin", "metrics.json")

def leave(ctx):
    for name in NAMES:
        with ctx.output(name) as file:
            file.write(f"{name} {os.getpid()}".encode())
    for task in ctx.tasks():
        if task.kind == "aggregation":
            task.save({"sum.csv": b"+".join(one.files["a.csv"] for one in task.results())})
        else:
            task.save({"a.csv": str(task.seed).encode()})
    return os.getpid()

async def leave_async(ctx):
    for name in NAMES:
        async with ctx.output(name) as file:
            file.write(f"{name} {os.getpid()}".encode())
    async for task in ctx.tasks_async():
        if task.kind == "aggregation":
            parts = [one.files["a.csv"] async for one in task.results_async()]
            await task.save_async({"sum.csv": b"+".join(parts)})
        else:
            await task.save_async({"a.csv": str(task.seed).encode()})
    return os.getpid()

@app.job
def plain(ctx: holdfast.Context): return leave(ctx)

@app.job(isolation="process")
def plain_apart(ctx: holdfast.Context): return leave(ctx)

@app.job
async def coroutine(ctx: holdfast.Context): return await leave_async(ctx)

@app.job(isolation="process")
async def coroutine_apart(ctx: holdfast.Context): return await leave_async(ctx)

@app.job(isolation="process", memory=128 * 2**20)
def large(ctx: holdfast.Context, megabytes: int):
    with ctx.output("large") as file:
        for _ in range(megabytes): file.write(bytes(2**20))

@app.job
def quick(): return "quick"

@app.job(max_failures=2)
def stumbles(ctx: holdfast.Context):
    for number, task in enumerate(ctx.tasks()):
        Path("did").open("a").write(f"{ctx.attempt} {task.seed}\\n")
        if ctx.attempt == 1 and number == 2: os.kill(os.getpid(), signal.SIGKILL)
        task.save({"a.csv": b"1"})
"""
KINDS = ("plain", "plain_apart", "coroutine", "coroutine_apart")
BUNDLE = "sha256:" + "cd" * 32


@pytest.fixture(params=STORES)
def floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    with opened(request.param, tmp_path, APP) as floor:
        yield floor


@pytest.fixture
def one_floor(tmp_path: Path) -> Iterator[Floor]:
    with opened("sqlite", tmp_path, APP) as floor:
        yield floor


def place(floor: Floor) -> str:
    return str(floor.folder / "results")


def make(floor: Floor, kind: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:  # noqa: ANN401
    with Client(floor.url, outputs=place(floor)) as client:
        given: dict[str, Any] = {"lease": 2, "retry": QUICK} | options
        return client.enqueue(kind, arguments, **given).job_id


def evidence(floor: Floor, job_id: str) -> dict[str, dict[str, Any]]:
    """What the verdict says about each output, by name."""
    said = [e.attributes["evidence"] for e in floor.history(job_id) if "evidence" in e.attributes]
    assert isinstance(said[-1], list)
    return {one["name"]: one for one in said[-1]}


def kept(floor: Floor, path: str) -> bytes:
    async def read() -> bytes:
        outputs = await open_outputs(place(floor), create=False)
        body = await outputs.get(path)
        await outputs.close()
        assert body is not None
        return body

    return asyncio.run(read())


def test_functions_of_every_kind_leave_what_they_promised(floor: Floor) -> None:
    promised = ["model.bin", "metrics.json"]
    made = {}
    for number, kind in enumerate(KINDS):
        tasks = study(
            bundle=BUNDLE,
            entrypoint="a:b",
            parameter_sets=[{"n": number}],
            replicates=2,
            targets=["t"],
        )
        made[kind] = make(floor, kind, outputs=promised, tasks=tasks)
    floor.worker("w-1", "--outputs", place(floor), "--drain")

    for kind, job_id in made.items():
        job = floor.succeeded(job_id)
        assert job.found is not None, kind
        assert (job.found.verified, job.found.reused) == (5, 0), kind
        assert kept(floor, f"managed/{job_id}/1/model.bin") == f"model.bin {job.result}".encode()
        assert job.progress is not None
        assert (job.progress.done, job.progress.total) == (3, 3)
    assert floor.workers["w-1"].wait(30) == 0
    assert "✔" in floor.said("w-1")
    floor.sound()


def test_a_worker_that_drains_leaves_when_its_own_jobs_are_judged(one_floor: Floor) -> None:
    floor = one_floor
    promised = ["model.bin", "metrics.json", "never"]
    jobs = [make(floor, "plain", outputs=promised, tasks=tasks_of(number)) for number in range(20)]

    assert floor.worker("w-1", "--outputs", place(floor), "--drain").wait(60) == 0

    for job_id in jobs:
        assert floor.job(job_id).state is State.PARTIAL_SUCCESS
    assert "3 of 4 outputs verified, 1 missing: never" in floor.said("w-1")
    assert set(evidence_names(floor, jobs[0])) == {"never"}


def tasks_of(number: int) -> Any:  # noqa: ANN401
    return study(bundle=BUNDLE, entrypoint="a:b", parameter_sets=[{"n": number}], replicates=1)


def evidence_names(floor: Floor, job_id: str) -> tuple[str, ...]:
    found = floor.job(job_id).found
    assert found is not None
    return found.names


def test_an_attempt_that_died_keeps_its_results_and_the_next_one_goes_on(one_floor: Floor) -> None:
    floor = one_floor
    tasks = study(bundle=BUNDLE, entrypoint="a:b", parameter_sets=[{"n": 1}], replicates=5)
    job_id = make(floor, "stumbles", tasks=tasks)
    floor.worker("w-1", "--outputs", place(floor), "--drain")

    job = floor.succeeded(job_id)

    did = [line.split() for line in (floor.folder / "did").read_text().splitlines()]
    first, second = ([seed for attempt, seed in did if attempt == str(n)] for n in (1, 2))
    assert (len(first), len(second), job.attempt) == (3, 3, 2)
    assert second[0] == first[2], "what was done was done again"


def test_a_file_larger_than_the_memory_of_its_process_is_left_whole(one_floor: Floor) -> None:
    job_id = make(one_floor, "large", {"megabytes": 300}, outputs=["large"], lease=30)
    one_floor.worker("w-1", "--outputs", place(one_floor), "--drain", "--lease", "30s")

    job = one_floor.succeeded(job_id, 120)

    assert evidence(one_floor, job_id)["large"]["size"] == 300 * 2**20
    assert job.failures == job.crashes == 0


def test_commands_leave_files_where_they_ran(floor: Floor) -> None:
    ran_in = floor.folder / "elsewhere"
    ran_in.mkdir()
    script = "mkdir run && touch run/1.csv run/2.csv && printf data >model && printf %s $PWD >here"
    digest = hashlib.sha256(b"data").hexdigest()
    files = [File("run/*.csv", count=2), File("model", size=4, sha256=digest), File("here")]
    with Client(floor.url) as client:
        call = command(["sh", "-c", script], cwd=str(ran_in), outputs=files)
        whole = client.enqueue(call).job_id
        here = client.submit(["sh", "-c", "touch a"], outputs=["a", "b"]).job_id
        empty = client.submit(["true"], outputs=["nothing"]).job_id
    floor.worker("w-1", "--commands", "--drain")

    assert floor.succeeded(whole).result == {"exit_code": 0}
    said = [e.attributes.get("where") for e in floor.history(whole)]
    assert f"{machine()}:{ran_in}" in said
    assert evidence(floor, whole)["model"]["sha256"] == digest
    partial = floor.ended(here)
    assert (partial.state, evidence_names(floor, here)) == (State.PARTIAL_SUCCESS, ("b",))
    assert partial.check is not None
    assert partial.check.where == f"{machine()}:{floor.folder}"
    assert floor.ended(empty).error is not None
    assert floor.ended(empty).error.code == "NO_OUTPUTS"  # type: ignore[union-attr]


def test_a_command_with_a_manifest_is_told_which_and_where(one_floor: Floor) -> None:
    floor = one_floor
    script = 'printf "$HOLDFAST_MANIFEST $HOLDFAST_OUTPUTS $HOLDFAST_FENCING_TOKEN"'
    with Client(floor.url, outputs=place(floor)) as client:
        job_id = client.submit(["sh", "-c", script], tasks=tasks_of(1)).job_id
        plain = client.submit(["sh", "-c", script]).job_id
    floor.worker("w-1", "--commands", "--drain", "--outputs", place(floor))

    promise = floor.ended(job_id).spec.outputs
    assert promise is not None
    assert floor.output(job_id).decode().split() == [str(promise.manifest), place(floor), "1"]
    floor.succeeded(plain)
    assert floor.output(plain).decode().split() == ["1"]


def test_a_worker_of_jobs_that_promise_nothing_makes_and_opens_no_output_store(
    one_floor: Floor,
) -> None:
    floor = one_floor
    job_id = floor.enqueue("quick")
    nowhere = "s3://no-such-bucket/at-all"
    assert floor.worker("w-1", "--outputs", nowhere, "--drain").wait(30) == 0
    other = floor.enqueue("quick")
    assert floor.worker("w-2", "--drain").wait(30) == 0

    assert floor.job(job_id).state is floor.job(other).state is State.SUCCEEDED
    assert "⚠" not in floor.said("w-1")
    assert list(floor.folder.glob("*.outputs")) == []


def test_a_function_whose_outputs_this_worker_cannot_keep_waits_for_one_that_can(
    floor: Floor,
) -> None:
    """Before any work is done for nothing, and at nobody's cost."""
    job_id = make(floor, "plain", outputs=["model.bin", "metrics.json"], tasks=tasks_of(1))
    other = str(floor.folder / "other")
    asyncio.run(open_outputs(other, create=True))
    floor.worker("w-1", "--outputs", other)

    put_off = floor.until(job_id, lambda job: job.reason is not None)

    assert put_off.state is State.QUEUED
    assert f"Its outputs belong into file://{place(floor)}" in str(put_off.reason)
    assert (put_off.failures, put_off.crashes) == (0, 0)
    assert floor.leave("w-1") == 0
    assert not (floor.folder / "other" / "managed").exists()
    assert put_off.ready_at > put_off.created_at


def test_an_output_store_that_was_chosen_and_is_not_there_is_looked_for_again(
    one_floor: Floor,
) -> None:
    floor = one_floor
    with Client(floor.url, outputs=place(floor)) as client:
        job_id = client.submit(["true"], tasks=tasks_of(1)).job_id
    worker = floor.worker("w-1", "--commands", "--drain", "--outputs", "nowhere")
    assert worker.wait(30) == 0

    job = floor.job(job_id)
    assert job.state is State.VALIDATING
    assert job.check is not None
    assert (job.check.tries, "nowhere" in str(job.check.reason)) == (1, True)
    assert "validating" in floor.said("w-1")


def test_a_worker_without_an_output_store_leaves_what_is_in_one_to_others(floor: Floor) -> None:
    with Client(floor.url, outputs=place(floor)) as client:
        jobs = [client.submit(["true"], tasks=tasks_of(n)).job_id for n in range(3)]
    assert floor.worker("w-1", "--commands", "--drain").wait(30) == 0

    for job_id in jobs:
        job = floor.job(job_id)
        assert job.state is State.VALIDATING
        assert job.check is not None
        assert job.check.tries == 0
    assert floor.said("w-1").count("are for others to validate") == 1


def test_a_worker_tells_in_json_what_came_of_outputs(one_floor: Floor) -> None:
    with Client(one_floor.url) as client:
        partial = client.submit(["sh", "-c", "touch a"], outputs=["a", "b"]).job_id
    assert one_floor.worker("w-1", "--commands", "--drain", "--log", "json").wait(30) == 0

    lines = [json.loads(line) for line in one_floor.said("w-1").splitlines()]
    [ended] = [line for line in lines if line["event"] == "job_ended"]
    assert (ended["job_id"], ended["state"], ended["level"]) == (
        partial,
        "partial_success",
        "warning",
    )
    assert ended["reason"] == "1 of 2 outputs verified, 1 missing: b"


def test_a_worker_that_is_told_to_leave_finishes_the_validation_it_has_begun(
    one_floor: Floor,
) -> None:
    floor = one_floor
    jobs: list[Job] = []
    for number in range(10):
        job_id = make(floor, "plain", outputs=["model.bin", "metrics.json"], tasks=tasks_of(number))
        jobs.append(floor.job(job_id))
    worker = floor.worker("w-1", "--outputs", place(floor))
    patient(lambda: floor.job(jobs[0].job_id).state not in (State.QUEUED, State.ASSIGNED))
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(30) == 0
    states = {floor.job(job.job_id).state for job in jobs}
    assert states <= {State.SUCCEEDED, State.QUEUED}
