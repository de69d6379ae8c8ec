"""The command line with an output store, studies, and jobs that wrote some of what they promised."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.manifest import Task, encode_task, study
from holdfast.outputs.results import ResultAuthor, Results
from holdfast.ports import Outputs, Registry
from holdfast.sdk.output_store import open_chosen_outputs
from holdfast.system import machine_name
from tests.cli.command_line import CommandLine

T = TypeVar("T")


_studies = count()


def epidemic(sets: int = 2, replicates: int = 3) -> list[Task]:
    """2 parameter sets with 3 replicates and one target: 6 + 2 outputs, of a model that no other study
    has, because tests share a server and its output store."""
    return list(
        study(
            bundle=f"sha256:{next(_studies):04x}" + 15 * "5e5e",
            entrypoint="models.sir/baseline",
            parameter_sets=[{"rate": 0.1 * n} for n in range(1, sets + 1)],
            replicates=replicates,
            targets=["peak"],
        )
    )


class OutputsCommandLine(CommandLine):
    """As `CommandLine`, with what concerns outputs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder / "work"
        self.folder.mkdir()
        self.beside = folder / "jobs.outputs"
        self.behind = self.url
        """The store itself, also when commands ask a server."""

    def promise(self, *outputs: str, job_id: str = "j") -> str:
        """A command in the folder that promises these."""
        options = [word for output in outputs for word in ("--output", output)]
        return self.submit("--job-id", job_id, "--cwd", str(self.folder), *options)

    def leave(self, *names: str) -> None:
        for name in names:
            (self.folder / name).write_text("x")

    def done(self, job_id: str = "j", *names: str) -> Job:
        """Its work is done, here, and has left these files; its outputs are not validated."""

        async def work(registry: Registry) -> Job:
            grant = await registry.acquire(job_id, owner="w1")
            self.leave(*names)
            for name in names:  # the kernel's stamp may be some milliseconds old
                os.utime(self.folder / name, (time.time() + 1, time.time() + 1))
            return await registry.complete(grant, Success(where=f"{machine_name()}:{self.folder}"))

        return self.registry(work)

    def failed(self, job_id: str = "j") -> Job:
        """Its command has failed, here; its outputs are not validated."""

        async def work(registry: Registry) -> Job:
            grant = await registry.acquire(job_id, owner="w1")
            failure = Failure(
                message="The command exited with 3.",
                retryable=False,
                exit_code=3,
                where=f"{machine_name()}:{self.folder}",
            )
            return await registry.complete(grant, failure)

        return self.registry(work)

    def validated(self, job_id: str = "j", code: int = 0) -> str:
        return self.run("validate", "--force", job_id, code=code).stdout

    def manifest(self, tasks: Sequence[Task]) -> Path:
        file = self.folder / "tasks.jsonl"
        file.write_bytes(b"".join(map(encode_task, tasks)))
        return file

    def ask_study(self, tasks: Sequence[Task], job_id: str = "j") -> str:
        return self.submit("--job-id", job_id, "--manifest", str(self.manifest(tasks)))

    def outputs(self, work: Callable[[Outputs], Awaitable[T]]) -> T:
        """Do something with the output store itself."""

        async def session() -> T:
            outputs = await open_chosen_outputs(self.behind, create=True)
            assert outputs is not None
            try:
                return await work(outputs)
            finally:
                await outputs.close()

        return asyncio.run(session())

    def save(self, tasks: Sequence[Task], job_id: str = "j", *, error: str | None = None) -> None:
        """Leave the results of these, or the error they ended with, as the owner of the job would."""

        async def put(outputs: Outputs) -> None:
            results, writer = Results(outputs), ResultAuthor(job_id, 1)
            for task in tasks:
                body = {"out.csv": task.name.encode()}
                await results.put(task, {} if error else body, writer=writer, error=error)

        self.outputs(put)

    def get(self, job_id: str) -> Job:
        return self.registry(lambda registry: registry.status(job_id))

    def partial(self, tasks: Sequence[Task], saved: int, job_id: str = "j") -> Job:
        """A study of which the first few tasks were done."""
        self.ask_study(tasks, job_id)
        self.save(tasks[:saved], job_id)
        self.done(job_id)
        self.validated(job_id, code=1)
        return self.get(job_id)


def table(text: str) -> list[list[str]]:
    """The cells of what `outputs` prints, without its header."""
    return [line.split(maxsplit=4) for line in text.splitlines()[1:]]
