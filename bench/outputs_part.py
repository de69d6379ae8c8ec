"""One measurement of outputs, in a process of its own: what it says of itself is JSON on stdout.

python bench/outputs_part.py write|bare|validate|resume FOLDER STUDY [ENTRIES THERE]
"""

import asyncio
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.manifest import MARKER, Task, encode_task
from holdfast.core.manifest import study as of_study
from holdfast.core.outputs import OutputPromise
from holdfast.core.spec import Spec
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.manifests import store_manifest
from holdfast.outputs.paths import TOKEN_1
from holdfast.outputs.results import FORMAT, Marker, ResultAuthor, file_path
from holdfast.outputs.url import open_outputs
from holdfast.outputs.validator import Validator
from holdfast.ports import Digest, JobRequest
from holdfast.sdk.open import open_registry

REPLICATES = 10
FILE_BYTES = 1024
ACTOR = "user:bench"
Said = dict[str, float]


def main(name: str, folder: str, study: str, *numbers: str) -> None:
    place = Path(folder)
    match name:
        case "write":
            said = asyncio.run(write(place, study, *map(int, numbers)))
        case "bare":
            said = bare(place, study)
        case "validate":
            said = asyncio.run(validate(place, study))
        case _:
            said = asyncio.run(resume(place, study))
    print(json.dumps(said))


def bare(folder: Path, study: str) -> Said:
    """The limit: open, read and hash every file that a validation has to see, one after another."""
    paths = (folder / f"{study}.paths").read_text(encoding="utf-8").splitlines()
    begun, size = time.perf_counter(), 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            body = file.read()
        hashlib.sha256(body).hexdigest()
        size += len(body)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "files": len(paths), "bytes": size, "megabytes": peak_megabytes()}


def peak_megabytes() -> float:
    """The most this process ever had in memory; what it was forked from does not count."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


async def write(folder: Path, study: str, entries: int, there: int) -> Said:
    """Keep the manifest of a study, and the first results of it. No disk is waited for: this is the
    setup, and not what is measured. That it is as the real code writes it, the validator finds out."""

    async def lines() -> AsyncIterator[bytes]:
        for task in tasks(study, entries):
            yield encode_task(task)

    begun = time.perf_counter()
    store = await DirectoryOutputs.open(folder / "outputs", create=True)
    sha256, kept = await store_manifest(store, lines())
    with (folder / f"{study}.paths").open("w", encoding="utf-8") as written:
        for number, task in enumerate(islice(tasks(study, entries), there)):
            for path in write_result(folder / "outputs", task, number):
                written.write(f"{path}\n")
    await store.close()
    about = {"manifest": sha256, "entries": kept, "store": store.store_id, "there": there}
    (folder / f"{study}.json").write_text(json.dumps(about), encoding="utf-8")
    return {"seconds": time.perf_counter() - begun}


def write_result(store: Path, task: Task, number: int) -> tuple[str, str]:
    """The two files of a result."""
    body = number.to_bytes(8, "big") * (FILE_BYTES // 8)
    digest = Digest(len(body), hashlib.sha256(body).hexdigest())
    marker = Marker(
        format=FORMAT,
        task=replace(task, outputs=()),
        files={"table": digest},
        writer=ResultAuthor("earlier", 1),
    )
    folder = f"{store}/{TOKEN_1.path(task)}"
    os.makedirs(folder)
    table, marked = file_path(folder, "table", digest.sha256), folder + MARKER
    Path(table).write_bytes(body)
    Path(marked).write_bytes(msgspec.json.encode(marker))
    return table, marked


def tasks(study: str, entries: int) -> Iterator[Task]:
    return of_study(
        bundle=f"sha256:{hashlib.sha256(study.encode()).hexdigest()}",
        entrypoint="models.seir/baseline",
        parameter_sets=({"beta": n / 7, "gamma": 0.1, "n": n} for n in range(entries // REPLICATES)),
        replicates=REPLICATES,
        outputs=("table",),
    )


class OutputsSetup:
    """A registry in a file, the output store, and a job whose work is done."""

    def __init__(self, folder: Path, study: str) -> None:
        self._folder = folder
        self.about = json.loads((folder / f"{study}.json").read_text(encoding="utf-8"))

    async def __aenter__(self) -> "OutputsSetup":
        self.registry = await open_registry(f"sqlite:///{self._folder / 'jobs.db'}")
        self.outputs = await open_outputs((self._folder / "outputs").as_uri(), create=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.outputs.close()
        await self.registry.close()

    async def job(self) -> Job:
        """As a worker leaves it: validating."""
        promise = OutputPromise(
            manifest=self.about["manifest"],
            entries=self.about["entries"],
            store=self.about["store"],
        )
        request = JobRequest(spec=Spec(kind="study", outputs=promise))
        made = await self.registry.enqueue(request, actor=ACTOR)
        grant = await self.registry.acquire(made.job_id, owner="bench")
        return await self.registry.complete(grant, Success())

    async def validated(self) -> tuple[Job, float]:
        validator = Validator(self.registry, self.outputs, machine=None, name="bench")
        job = await self.job()
        begun = time.perf_counter()
        judged = await validator.validate(job)
        seconds = time.perf_counter() - begun
        found = judged.found
        assert found is not None, judged
        assert found.verified == self.about["there"], found
        assert found.verified + found.missing == self.about["entries"], found
        return judged, seconds


async def validate(folder: Path, study: str) -> Said:
    """The real validator on one job, from its first look to its verdict."""
    before = os.times()
    async with OutputsSetup(folder, study) as setup:
        _, seconds = await setup.validated()
    after = os.times()
    used = after.user + after.system - before.user - before.system
    return {"seconds": seconds, "cpu": used, "megabytes": peak_megabytes()}


async def resume(folder: Path, study: str) -> Said:
    """The resume of a partial success: from the asking to the job that makes what is missing."""
    async with OutputsSetup(folder, study) as setup:
        partial, _ = await setup.validated()
        inspector = LocalInspector(setup.registry, setup.outputs, machine=None, name="bench")
        begun = time.perf_counter()
        resumed = await inspector.resume(partial.job_id, actor=ACTOR)
        seconds = time.perf_counter() - begun
        assert resumed.job is not None
        assert resumed.missing == resumed.job.spec.promised_outputs
        assert resumed.missing == setup.about["entries"] - setup.about["there"]
    return {"seconds": seconds, "missing": resumed.missing, "megabytes": peak_megabytes()}


if __name__ == "__main__":
    main(*sys.argv[1:])
