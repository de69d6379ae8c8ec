"""What handlers write: outputs by name, and the results of the tasks of a study."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Invalid, Job, JobFailed, Retry, State
from holdfast.core.manifest import Task
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.results import Results
from holdfast.outputs.url import open_outputs
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.job_function import JobFunction
from holdfast.testing import Bench, memory_app
from tests.runner.outputs_app import (
    app,
    begets,
    both,
    by_path,
    cancels_itself,
    said,
    sweep,
    sweep_async,
    tasks,
    train,
    train_async,
    waits_for_itself,
)

ONCE = Retry(max_failures=1)
BOTH = ["model.bin", "metrics.json"]
Trains = pytest.mark.parametrize("job", [train, train_async], ids=["plain", "coroutine"])
Sweeps = pytest.mark.parametrize("job", [sweep, sweep_async], ids=["plain", "coroutine"])
Function = JobFunction[..., Any, Callable[..., Any]]


@pytest.fixture
def bench() -> Iterator[Bench]:
    said.clear()
    with memory_app(app) as bench:
        yield bench


def files() -> list[str]:
    """Every managed file that was kept, in the output store of the app."""
    root = Path(str(app.outputs).removeprefix("file://")) / "managed"
    found = (path for path in root.rglob("*") if path.is_file() and "complete" not in path.parts)
    return sorted(path.relative_to(root).as_posix().partition("/")[2] for path in found)


@Trains
def test_a_job_has_succeeded_when_everything_it_promised_was_found_whole(bench: Bench, job: Function) -> None:
    handle = job.enqueue(write=BOTH)
    done = bench.drain().check().jobs[0]

    assert (done.result, done.found.verified if done.found else None) == (1, 2)
    assert handle.result(timeout=120) == 1
    assert [one["size"] for one in evidence(bench, done)] == [14, 17]
    assert files() == ["1/metrics.json", "1/model.bin"]


def evidence(bench: Bench, job: Job) -> list[dict[str, Any]]:
    """What the verdict says about each output."""
    history = asyncio.run(LocalRegistry(bench.store, bench.ids).history(job.job_id))
    [found] = [event.attributes["evidence"] for event in history if "evidence" in event.attributes]
    assert isinstance(found, list)
    return found


@Trains
def test_one_that_lacks_some_is_a_partial_success_and_one_that_lacks_all_has_failed(
    bench: Bench, job: Function
) -> None:
    some, none = job.enqueue(write=["model.bin"]), job.enqueue(write=[])
    partial, failed = bench.drain().jobs

    assert (partial.state, failed.state) == (State.PARTIAL_SUCCESS, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "NO_OUTPUTS"
    words = "ended partial_success: 1 of its 2 outputs are missing: metrics.json"
    with pytest.raises(JobFailed, match=words):
        some.result(timeout=120)
    with pytest.raises(JobFailed, match="No promised output was found"):
        none.result(timeout=120)


@Trains
def test_an_exception_leaves_nothing_of_the_file_that_was_open(bench: Bench, job: Function) -> None:
    job.enqueue(write=BOTH, breaks="metrics.json")
    bench.drain()
    assert files() == ["1/model.bin"]

    assert bench.drain(until_idle=True).check().jobs[0].attempt == 2
    assert files() == ["1/model.bin", "2/metrics.json", "2/model.bin"]


@Trains
def test_an_attempt_counts_for_nothing_that_another_one_wrote(bench: Bench, job: Function) -> None:
    job.enqueue(write=["metrics.json", "model.bin"], breaks="model.bin")
    bench.drain()
    assert files() == ["1/metrics.json"]
    [queued] = bench.jobs()
    assert queued.state is State.QUEUED
    done = bench.drain(until_idle=True).check().jobs[0]

    paths = {one["path"] for one in evidence(bench, done)}
    assert paths == {f"managed/{done.job_id}/2/{name}" for name in BOTH}


@Trains
def test_a_name_that_was_not_promised_is_refused_with_those_that_were(bench: Bench, job: Function) -> None:
    job.configure(retry=ONCE).enqueue(write=["other"])
    failed = bench.drain().jobs[0]

    words = "The job has promised no output 'other'; it has promised model.bin, metrics.json."
    assert words in str(failed.reason)


def test_a_job_that_promised_nothing_says_how_to_promise(bench: Bench) -> None:
    by_path.enqueue()
    assert "has promised no outputs: write @app.job(outputs=[…])" in str(bench.drain().jobs[0].reason)


def test_whatever_writes_files_may_write_the_output_by_its_path(bench: Bench) -> None:
    by_path.configure(outputs=["a.txt"]).enqueue()
    bench.drain().check()

    root = Path(str(app.outputs).removeprefix("file://"))
    [kept] = root.glob("managed/*/1/a.txt")
    assert kept.read_bytes() == b"by its path"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("output", "async with ctx.output"),
        ("tasks", "async for task in ctx.tasks_async"),
        ("save", "await task.save_async"),
    ],
)
def test_a_coroutine_that_would_wait_for_itself_is_told_what_to_write(
    bench: Bench, how: str, words: str
) -> None:
    waits_for_itself.configure(outputs=["a.txt"], tasks=tasks(1, 1)).enqueue(how=how)
    assert f"In a coroutine, write: {words}" in str(bench.drain().jobs[0].reason)


@Sweeps
def test_a_study_of_two_by_three_leaves_six_results_and_two_aggregations(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks()).enqueue()
    done = bench.drain().check().jobs[0]

    assert (done.result, len(said)) == (8, 8)
    assert done.found is not None
    assert (done.found.verified, done.found.reused) == (8, 0)
    assert done.progress is not None
    assert (done.progress.done, done.progress.total) == (8, 8)
    first = [f"0.0 {task.seed}" for task in tasks() if task.params["beta"] == 0 and task.seed]
    aggregation = next(task for task in tasks() if task.kind == "aggregation")
    assert result(aggregation)["mean.csv"].decode().split("+") == first


def result(task: Task) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        outputs = await open_outputs(str(app.outputs), create=False)
        found = await Results(outputs).get(task)
        await outputs.close()
        assert found is not None
        return found.files

    return asyncio.run(read())


@Sweeps
def test_the_next_attempt_does_only_what_the_last_one_did_not(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks()).enqueue(stop_after=5)
    done = bench.drain(until_idle=True).check().jobs[0]

    first, second = ([n for n in said if n.startswith(f"{attempt} ")] for attempt in (1, 2))
    assert (len(first), len(second), done.result) == (5, 3, 3)
    assert {name[2:] for name in first}.isdisjoint({name[2:] for name in second})
    assert done.found is not None
    assert (done.found.verified, done.found.reused) == (8, 0)


@Sweeps
def test_how_far_a_study_is_can_be_seen(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks(), retry=ONCE).enqueue(stop_after=5)
    bench.drain()

    [job_] = bench.jobs()
    assert job_.progress is not None
    assert (job_.progress.done, job_.progress.total) == (5, 8)


def test_a_handler_that_was_asked_to_stop_gets_no_other_task(bench: Bench) -> None:
    cancels_itself.configure(tasks=tasks(4, 1)).enqueue()
    bench.drain()

    assert bench.jobs()[0].state is State.CANCELLED
    assert len(said) == 2


@Sweeps
def test_what_another_job_has_computed_is_not_computed_again(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks(1)).enqueue()
    bench.drain().check()
    said.clear()

    job.configure(tasks=tasks(2)).enqueue()
    done = bench.drain().check().jobs[0]

    assert (len(said), done.found.reused if done.found else None) == (4, 4)


@Sweeps
def test_an_error_result_counts_as_missing_and_is_tried_again(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks(2, 1)).enqueue(fails=1)
    partial = bench.drain().jobs[0]
    assert partial.state is State.PARTIAL_SUCCESS
    assert partial.found is not None
    assert (partial.found.verified, partial.found.missing) == (1, 1)

    said.clear()
    job.configure(tasks=tasks(2, 1)).enqueue()
    assert bench.drain().check().attempts == 1
    assert len(said) == 1


@Sweeps
def test_an_aggregation_of_what_is_not_there_says_which_replicate_lacks(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks(1), retry=ONCE).enqueue(fails=0)
    first = next(tasks(1))

    bench.drain()
    assert f"There is no complete result of {first.name}" in str(bench.jobs()[0].reason)


@Sweeps
def test_a_study_that_is_all_there_runs_nothing(bench: Bench, job: Function) -> None:
    job.configure(tasks=tasks(2, 1)).enqueue()
    bench.drain().check()
    said.clear()

    again = job.configure(tasks=tasks(2, 1)).enqueue()

    assert again.job_id.startswith("cached-")
    assert bench.drain().jobs == []
    assert again.refresh().state is State.SUCCEEDED
    with pytest.raises(Invalid, match="Nothing was run for job cached-"):
        again.result(timeout=120)
    assert app.background.call(lambda client: client.result(again.job_id)) is None


def test_follow_ups_promise_as_well(bench: Bench) -> None:
    begets.enqueue()
    states = {job.spec.kind: job for job in bench.drain(until_idle=True).check().jobs}

    assert sorted(states) == ["begets", "sweep", "train"]
    assert [states[kind].spec.promised_outputs for kind in sorted(states)] == [0, 1, 2]


def test_a_job_that_resumes_another_does_and_keeps_only_what_that_lacks(bench: Bench) -> None:
    both.configure(tasks=tasks(2, 1)).enqueue()
    partial = bench.drain().jobs[0]
    assert partial.state is State.PARTIAL_SUCCESS
    assert files() == ["1/model.bin"]
    said[:] = ["mended"]

    resumed = asyncio.run(resume(bench, partial))
    done = {job.job_id: job for job in bench.drain(until_idle=True).check().jobs}

    assert said == ["mended", "task"]
    assert done[resumed].spec.promised_outputs == 1
    assert files() == ["1/model.bin"], "what is there already was kept once more"
    whole = next(job for job in bench.jobs() if job.job_id == partial.job_id)
    assert whole.state is State.SUCCEEDED
    assert whole.found is not None
    assert (whole.found.verified, whole.found.reused) == (3, 0)


async def resume(bench: Bench, partial: Job) -> str:
    outputs = await open_outputs(str(app.outputs), create=False)
    registry = LocalRegistry(bench.store, bench.ids)
    inspector = LocalInspector(registry, outputs, machine=None, name="i")
    made = await inspector.resume(partial.job_id, actor="user:ana")
    await outputs.close()
    assert made.job is not None
    return made.job.job_id
