"""Real workers and promised outputs: functions of every kind, commands, and stores they cannot see."""

import asyncio
import hashlib
import json
import signal
from typing import Any

from holdfast import Client, File, Job, State, command, study
from holdfast.outputs.url import open_outputs
from holdfast.system import machine_name
from tests.worker.function_workers import QUICK, FunctionWorkers
from tests.worker.live_processes import PATIENCE_SECONDS, wait_until

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


def place(workers: FunctionWorkers) -> str:
    return str(workers.folder / "results")


def make(
    workers: FunctionWorkers,
    kind: str,
    arguments: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401
) -> str:
    with Client(workers.url, outputs=place(workers)) as client:
        given: dict[str, Any] = {"lease": 2, "retry": QUICK} | options
        return client.enqueue(kind, arguments, **given).job_id


def evidence(workers: FunctionWorkers, job_id: str) -> dict[str, dict[str, Any]]:
    """What the verdict says about each output, by name."""
    said = [e.attributes["evidence"] for e in workers.history(job_id) if "evidence" in e.attributes]
    assert isinstance(said[-1], list)
    return {one["name"]: one for one in said[-1]}


def kept(workers: FunctionWorkers, path: str) -> bytes:
    async def read() -> bytes:
        outputs = await open_outputs(place(workers), create=False)
        body = await outputs.get(path)
        await outputs.close()
        assert body is not None
        return body

    return asyncio.run(read())


def test_functions_of_every_kind_leave_what_they_promised(workers: FunctionWorkers) -> None:
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
        made[kind] = make(workers, kind, outputs=promised, tasks=tasks)
    workers.start("w-1", "--outputs", place(workers), "--drain")

    for kind, job_id in made.items():
        job = workers.succeeded(job_id)
        assert job.found is not None, kind
        assert (job.found.verified, job.found.reused) == (5, 0), kind
        assert kept(workers, f"managed/{job_id}/1/model.bin") == f"model.bin {job.result}".encode()
        assert job.progress is not None
        assert (job.progress.done, job.progress.total) == (3, 3)
    assert workers.processes["w-1"].wait(PATIENCE_SECONDS) == 0
    assert "✔" in workers.worker_log("w-1")
    workers.assert_consistent()


def test_a_worker_that_drains_leaves_when_its_own_jobs_are_judged(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    promised = ["model.bin", "metrics.json", "never"]
    jobs = [make(workers, "plain", outputs=promised, tasks=tasks_of(number)) for number in range(20)]

    assert workers.start("w-1", "--outputs", place(workers), "--drain").wait(PATIENCE_SECONDS) == 0

    for job_id in jobs:
        assert workers.job(job_id).state is State.PARTIAL_SUCCESS
    assert "3 of 4 outputs verified, 1 missing: never" in workers.worker_log("w-1")
    assert set(evidence_names(workers, jobs[0])) == {"never"}


def tasks_of(number: int) -> Any:  # noqa: ANN401
    return study(bundle=BUNDLE, entrypoint="a:b", parameter_sets=[{"n": number}], replicates=1)


def evidence_names(workers: FunctionWorkers, job_id: str) -> tuple[str, ...]:
    found = workers.job(job_id).found
    assert found is not None
    return found.names


def test_an_attempt_that_died_keeps_its_results_and_the_next_one_goes_on(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    tasks = study(bundle=BUNDLE, entrypoint="a:b", parameter_sets=[{"n": 1}], replicates=5)
    job_id = make(workers, "stumbles", tasks=tasks)
    workers.start("w-1", "--outputs", place(workers), "--drain")

    job = workers.succeeded(job_id)

    did = [line.split() for line in (workers.folder / "did").read_text().splitlines()]
    first, second = ([seed for attempt, seed in did if attempt == str(n)] for n in (1, 2))
    assert (len(first), len(second), job.attempt) == (3, 3, 2)
    assert second[0] == first[2], "what was done was done again"


def test_a_file_larger_than_the_memory_of_its_process_is_left_whole(
    sqlite_workers: FunctionWorkers,
) -> None:
    job_id = make(sqlite_workers, "large", {"megabytes": 300}, outputs=["large"], lease=30)
    sqlite_workers.start("w-1", "--outputs", place(sqlite_workers), "--drain", "--lease", "30s")

    job = sqlite_workers.succeeded(job_id)

    assert evidence(sqlite_workers, job_id)["large"]["size"] == 300 * 2**20
    assert job.failures == job.crashes == 0


def test_commands_leave_files_where_they_ran(workers: FunctionWorkers) -> None:
    ran_in = workers.folder / "elsewhere"
    ran_in.mkdir()
    script = "mkdir run && touch run/1.csv run/2.csv && printf data >model && printf %s $PWD >here"
    digest = hashlib.sha256(b"data").hexdigest()
    files = [File("run/*.csv", count=2), File("model", size=4, sha256=digest), File("here")]
    with Client(workers.url) as client:
        call = command(["sh", "-c", script], cwd=str(ran_in), outputs=files)
        whole = client.enqueue(call).job_id
        here = client.submit(["sh", "-c", "touch a"], outputs=["a", "b"]).job_id
        empty = client.submit(["true"], outputs=["nothing"]).job_id
    workers.start("w-1", "--commands", "--drain")

    assert workers.succeeded(whole).result == {"exit_code": 0}
    said = [e.attributes.get("where") for e in workers.history(whole)]
    assert f"{machine_name()}:{ran_in}" in said
    assert evidence(workers, whole)["model"]["sha256"] == digest
    partial = workers.ended(here)
    assert (partial.state, evidence_names(workers, here)) == (State.PARTIAL_SUCCESS, ("b",))
    assert partial.check is not None
    assert partial.check.where == f"{machine_name()}:{workers.folder}"
    assert workers.ended(empty).error is not None
    assert workers.ended(empty).error.code == "NO_OUTPUTS"  # type: ignore[union-attr]


def test_a_command_with_a_manifest_is_told_which_and_where(sqlite_workers: FunctionWorkers) -> None:
    workers = sqlite_workers
    script = 'printf "$HOLDFAST_MANIFEST $HOLDFAST_OUTPUTS $HOLDFAST_FENCING_TOKEN"'
    with Client(workers.url, outputs=place(workers)) as client:
        job_id = client.submit(["sh", "-c", script], tasks=tasks_of(1)).job_id
        plain = client.submit(["sh", "-c", script]).job_id
    workers.start("w-1", "--commands", "--drain", "--outputs", place(workers))

    promise = workers.ended(job_id).spec.outputs
    assert promise is not None
    assert workers.output(job_id).decode().split() == [str(promise.manifest), place(workers), "1"]
    workers.succeeded(plain)
    assert workers.output(plain).decode().split() == ["1"]


def test_a_worker_of_jobs_that_promise_nothing_makes_and_opens_no_output_store(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    job_id = workers.enqueue("quick")
    nowhere = "s3://no-such-bucket/at-all"
    assert workers.start("w-1", "--outputs", nowhere, "--drain").wait(PATIENCE_SECONDS) == 0
    other = workers.enqueue("quick")
    assert workers.start("w-2", "--drain").wait(PATIENCE_SECONDS) == 0

    assert workers.job(job_id).state is workers.job(other).state is State.SUCCEEDED
    assert "⚠" not in workers.worker_log("w-1")
    assert list(workers.folder.glob("*.outputs")) == []


def test_a_function_whose_outputs_this_worker_cannot_keep_waits_for_one_that_can(
    workers: FunctionWorkers,
) -> None:
    """Before any work is done in vain, and at no cost to the job."""
    job_id = make(workers, "plain", outputs=["model.bin", "metrics.json"], tasks=tasks_of(1))
    other = str(workers.folder / "other")
    asyncio.run(open_outputs(other, create=True))
    workers.start("w-1", "--outputs", other)

    put_off = workers.until(job_id, lambda job: job.reason is not None)

    assert put_off.state is State.QUEUED
    assert f"The outputs of this job belong in file://{place(workers)}" in str(put_off.reason)
    assert (put_off.failures, put_off.crashes) == (0, 0)
    assert workers.leave("w-1") == 0
    assert not (workers.folder / "other" / "managed").exists()
    assert put_off.ready_at > put_off.created_at


def test_an_output_store_that_was_chosen_and_is_not_there_is_looked_for_again(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    with Client(workers.url, outputs=place(workers)) as client:
        job_id = client.submit(["true"], tasks=tasks_of(1)).job_id
    worker = workers.start("w-1", "--commands", "--drain", "--outputs", "nowhere")
    assert worker.wait(PATIENCE_SECONDS) == 0

    job = workers.job(job_id)
    assert job.state is State.VALIDATING
    assert job.check is not None
    assert (job.check.tries, "nowhere" in str(job.check.reason)) == (1, True)
    assert "validating" in workers.worker_log("w-1")


def test_a_worker_without_an_output_store_leaves_what_is_in_one_to_others(
    workers: FunctionWorkers,
) -> None:
    with Client(workers.url, outputs=place(workers)) as client:
        jobs = [client.submit(["true"], tasks=tasks_of(n)).job_id for n in range(3)]
    assert workers.start("w-1", "--commands", "--drain").wait(PATIENCE_SECONDS) == 0

    for job_id in jobs:
        job = workers.job(job_id)
        assert job.state is State.VALIDATING
        assert job.check is not None
        assert job.check.tries == 0
    assert workers.worker_log("w-1").count("are left for other workers to validate") == 1


def test_a_worker_tells_in_json_what_came_of_outputs(sqlite_workers: FunctionWorkers) -> None:
    with Client(sqlite_workers.url) as client:
        partial = client.submit(["sh", "-c", "touch a"], outputs=["a", "b"]).job_id
    assert sqlite_workers.start("w-1", "--commands", "--drain", "--log", "json").wait(PATIENCE_SECONDS) == 0

    lines = [json.loads(line) for line in sqlite_workers.worker_log("w-1").splitlines()]
    [ended] = [line for line in lines if line["event"] == "job_ended"]
    assert (ended["job_id"], ended["state"], ended["level"]) == (
        partial,
        "partial_success",
        "warning",
    )
    assert ended["reason"] == "1 of 2 outputs verified, 1 missing: b"


def test_a_worker_that_is_told_to_leave_finishes_the_validation_it_has_begun(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    jobs: list[Job] = []
    for number in range(10):
        job_id = make(workers, "plain", outputs=["model.bin", "metrics.json"], tasks=tasks_of(number))
        jobs.append(workers.job(job_id))
    worker = workers.start("w-1", "--outputs", place(workers))
    wait_until(lambda: workers.job(jobs[0].job_id).state not in (State.QUEUED, State.ASSIGNED))
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(PATIENCE_SECONDS) == 0
    states = {workers.job(job.job_id).state for job in jobs}
    assert states <= {State.SUCCEEDED, State.QUEUED}
