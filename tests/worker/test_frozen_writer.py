"""A writer that is frozen inside an output, outlives its lease and goes on does no harm."""

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from holdfast import Client, State
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.managed import file_path, mark_path, validate_named
from holdfast.outputs.url import open_outputs
from holdfast.ports import Registry
from tests.worker.function_workers import QUICK, FunctionWorkers
from tests.worker.live_processes import children_of, wait_until

APP = """
from holdfast.failpoint import arm

def freeze():
    Path("frozen").write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)

def hook(name):
    # Its bytes are in the output store, and nothing says yet that they are whole.
    if name == "outputs.managed_written" and not Path("frozen").exists(): freeze()

@app.job(outputs=["model.bin", "late"])
def inside_the_commit(ctx: holdfast.Context):
    arm(hook)
    write(ctx)
    return ctx.attempt

@app.job(outputs=["model.bin", "late"])
def before_the_commit(ctx: holdfast.Context):
    write(ctx, freezes=ctx.attempt == 1)
    return ctx.attempt

def write(ctx, freezes=False):
    try:
        with ctx.output("model.bin") as file:
            file.write(f"weights of attempt {ctx.attempt}".encode())
            if freezes: freeze()
        with ctx.output("late") as file:
            file.write(f"late of attempt {ctx.attempt}".encode())
    except Exception as error:
        Path(f"raised-{ctx.attempt}").write_text(repr(error))
        raise
"""
NAMES = ("model.bin", "late")


def tree(pid: int) -> list[int]:
    """The worker, its supervisor and its runners."""
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


def place(workers: FunctionWorkers) -> str:
    return str(workers.folder / "results")


def freeze_and_succeed(workers: FunctionWorkers, kind: str) -> tuple[str, int, list[int]]:
    """Freeze the whole first worker while it writes, and let a second one do the job: the job, the
    frozen runner, and all that is frozen."""
    with Client(workers.url, outputs=place(workers)) as client:
        job_id = client.enqueue(kind, lease=2, retry=QUICK, outputs=list(NAMES)).job_id
    first = workers.start("w-1", "--outputs", place(workers))
    runner = int(workers.file("frozen"))
    frozen = tree(first.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    workers.start("w-2", "--outputs", place(workers))
    job = workers.succeeded(job_id)
    assert (job.attempt, job.result, job.fencing_token) == (2, 2, 2)
    assert runner in frozen
    return job_id, runner, frozen


def evidence(workers: FunctionWorkers, job_id: str) -> dict[str, dict[str, Any]]:
    said = [e.attributes["evidence"] for e in workers.history(job_id) if "evidence" in e.attributes]
    assert len(said) == 1
    assert isinstance(said[0], list)
    return {one["name"]: one for one in said[0]}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def thaw(*pids: int) -> None:
    for pid in pids:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)


def test_a_commit_that_lands_late_lies_under_its_own_token_and_never_counts(
    workers: FunctionWorkers,
) -> None:
    job_id, runner, frozen = freeze_and_succeed(workers, "inside_the_commit")
    root = Path(place(workers))
    late = root / mark_path(job_id, 1, "model.bin")
    assert (root / file_path(job_id, 1, "model.bin")).exists()
    assert not late.exists()

    thaw(runner)  # its code goes on before the worker can tell it

    wait_until(late.exists)
    assert "Fenced" in workers.file("raised-1"), "what it begins after its lease is refused"
    thaw(*frozen)
    wait_until(lambda: "no longer ours" in workers.worker_log("w-1"))
    job = workers.job(job_id)
    said = evidence(workers, job_id)
    assert job.state is State.SUCCEEDED
    assert {name: said[name]["sha256"] for name in NAMES} == {
        "model.bin": sha256("weights of attempt 2"),
        "late": sha256("late of attempt 2"),
    }
    assert {said[name]["path"] for name in NAMES} == {file_path(job_id, 2, n) for n in NAMES}
    workers.use(lambda registry: look_again(registry, job_id, place(workers)))
    workers.assert_consistent()


async def look_again(registry: Registry, job_id: str, url: str) -> None:
    """Whoever looks now finds what the successor wrote, whole, and the zombie's apart from it."""
    outputs = await open_outputs(url, create=False)
    for name, text in (("model.bin", "weights of attempt {}"), ("late", "late of attempt {}")):
        found = await validate_named(outputs, [(job_id, 2)], name)
        assert (found.missing, found.sha256) == (None, sha256(text.format(2)))
    zombies = await validate_named(outputs, [(job_id, 1)], "model.bin")
    assert zombies.sha256 == sha256("weights of attempt 1")
    assert (await validate_named(outputs, [(job_id, 1)], "late")).missing is not None
    inspector = LocalInspector(registry, outputs, machine=None, name="test")
    judged = await inspector.validate(job_id, actor="user:ana", force=True)
    page = await inspector.list_outputs(job_id)
    await outputs.close()
    assert judged.state is State.SUCCEEDED
    assert [one.path for one in page.outputs] == [file_path(job_id, 2, name) for name in NAMES]


def test_a_writer_that_wakes_up_after_its_lease_commits_nothing_at_all(
    workers: FunctionWorkers,
) -> None:
    job_id, runner, frozen = freeze_and_succeed(workers, "before_the_commit")

    thaw(runner)

    assert "Fenced" in workers.file("raised-1")
    thaw(*frozen)
    wait_until(lambda: "no longer ours" in workers.worker_log("w-1"))
    root = Path(place(workers)) / "managed" / job_id
    assert sorted(path.name for path in root.iterdir()) == ["2", "complete"]
    assert [path.name for path in (root / "complete").iterdir()] == ["2"]
    said = evidence(workers, job_id)
    assert said["model.bin"]["sha256"] == sha256("weights of attempt 2")
