"""`holdfast demo`: workers, a failure, a killed worker, its recovery, and the proof, in half a minute."""

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from datetime import timedelta
from pathlib import Path

import click

from holdfast.cli.demo_view import LiveView, PlainView, View
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.terminal import on_terminal
from holdfast.core.catalogue import EventType
from holdfast.core.job import Job
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest, Registry, Verification
from holdfast.sdk.defaults import actor
from holdfast.sdk.open import open_registry
from holdfast.system import SystemClock

LEASE = timedelta(seconds=3)
WORKERS = ("worker-1", "worker-2", "worker-3")
SIMULATIONS = 18
TIMEOUT_SECONDS = 90.0
VICTIM = "train-model"


@click.command()
@click.option("--keep", metavar="DIR", help="Folder for the demo's store.  [default: a new one]")
def demo(*, keep: str | None) -> None:
    """Watch three workers share a queue, one of them being killed with kill -9 in the middle of a
    job, another taking over, and every record proved equal to its log at the end."""
    folder = Path(keep or tempfile.mkdtemp(prefix="holdfast-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    view = LiveView() if on_terminal() else PlainView()
    raise SystemExit(asyncio.run(_demo(folder, view)))


async def _demo(folder: Path, view: View) -> int:
    url = f"sqlite:///{(folder / 'holdfast.db').absolute()}"
    registry = await open_registry(url)
    workers: dict[str, Process] = {}
    try:
        names = await _enqueue(registry)
        view.open(names, url)
        for name in WORKERS:
            workers[name] = await _start(name, url)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            killed = await _watch(registry, names, workers, view)
        jobs = [job for job in await registry.status_many(list(names)) if job is not None]
        proof = await registry.verify()
        story = await registry.history(_victim(names))
        view.close(jobs, story, proof, killed, url)
        return ExitCode.DONE if _as_promised(jobs, proof) else ExitCode.NO
    finally:
        for process in workers.values():
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in workers.values()))
        await registry.close()


def _as_promised(jobs: list[Job], proof: Verification) -> bool:
    """One job fails on purpose; all others succeed, and the log agrees with every record."""
    failed = sum(job.state is not State.SUCCEEDED for job in jobs)
    return proof.equal and failed == 1


async def _enqueue(registry: Registry) -> dict[str, str]:
    """Enqueue the jobs, and return the name of each by its id."""
    flaky = 'test -e "$0" && echo "second time lucky" || { touch "$0"; echo "hiccup" >&2; exit 1; }'
    marker = tempfile.mktemp(prefix="holdfast-flaky-")  # noqa: S306  # only its absence matters
    work = [("sh", "-c", f"sleep 0.{3 + n % 5}; echo loss=0.{97 - 3 * n:02d}") for n in range(SIMULATIONS)]
    specs = [_spec(f"simulate-{n + 1:02d}", argv) for n, argv in enumerate(work)]
    specs.insert(2, _spec(VICTIM, ("sh", "-c", "echo epoch 1; sleep 4; echo epoch 2"), priority=1))
    specs.insert(6, _spec("exits-with-3", ("sh", "-c", "echo 'no such file: data.csv' >&2; exit 3")))
    specs.insert(9, _spec("flaky-upload", ("sh", "-c", flaky, marker), Retry(max_failures=3)))
    requests = [JobRequest(spec=spec) for spec in specs]
    jobs = await registry.enqueue_many(requests, actor=actor())
    return {job.job_id: job.spec.name or "" for job in jobs}


def _spec(name: str, argv: tuple[str, ...], retry: Retry = COMMAND_RETRY, priority: int = 5) -> Spec:
    payload = encode_process_spec(ProcessSpec(argv=argv))
    return Spec(name=name, payload=payload, retry=retry, lease=LEASE, priority=priority)


async def _start(name: str, url: str) -> Process:
    command = [sys.executable, "-m", "holdfast", "worker", "--name", name, "-c", "1"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    env["HOLDFAST_CONFIG"] = os.devnull  # a worker of the demo, not of this machine
    return await asyncio.create_subprocess_exec(
        *command, "--store", url, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=env
    )


def _victim(names: dict[str, str]) -> str:
    return next(job_id for job_id, name in names.items() if name == VICTIM)


async def _watch(registry: Registry, names: dict[str, str], workers: dict[str, Process], view: View) -> str:
    """Show every event until all jobs have ended; kill the worker that trains the model, once."""
    killed = ""
    open_jobs = set(names)
    async for event in registry.watch():
        job_id = event.job_id or ""
        view.show(event, names.get(job_id, job_id))
        if job_id == _victim(names) and event.event_type == EventType.STARTED and not killed:
            owner = (await registry.status(job_id)).owner or ""
            await SystemClock().sleep(1.0)  # let it be in the middle
            workers[owner].send_signal(signal.SIGKILL)
            killed = owner
            view.kill(owner, VICTIM)
        if event.to_state is not None and (await registry.status(job_id)).ended:
            open_jobs.discard(job_id)
            if not open_jobs:
                break
    return killed
