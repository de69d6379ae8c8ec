"""Jobs to report, an app to run, and an output that keeps what a worker writes."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.worker.completion_reporter import WorkerObserver
from tests.cli.command_line import SOURCE, CommandLine

AT = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b\x1b[2Jc\nd\r\u202ee\x9bf\u2028g"

APP = """
import holdfast
app = holdfast.App()

@app.job
async def resize(n: int) -> int:
    return n

@app.job(max_failures=1, on_exhausted="fail")
def mail(to: str) -> None:
    raise holdfast.PermanentError("nobody is called \\x1b[31m" + to)
"""
FILL = """
from shop import app, mail, resize
resize.enqueue_many([resize.call(n=n) for n in range({number})])
mail.configure(correlation_id="order-1", trace_id="trace-1").enqueue(to="ada")
app.close()
"""


def make_app(cli: CommandLine, folder: Path, number: int) -> None:
    """An app in the folder, and jobs for it."""
    (folder / "shop.py").write_text(APP)
    cli.environment["PYTHONPATH"] = f"{folder}{os.pathsep}{SOURCE}"
    fill = [sys.executable, "-c", FILL.format(number=number)]
    subprocess.run(fill, env=cli.environment, check=True, timeout=60)


def arguments(folder: Path, *more: str) -> list[str]:
    return ["worker", *more, "--name", "w1", "--drain", "--spool", str(folder / "spool")]


def calls_per_job(report: WorkerObserver, jobs: int) -> float:
    """How many functions, ours and built in, it takes to report one short job.

    Counted, because a time would be the machine's as much as ours.
    """
    grants = [granted(f"job-{number}") for number in range(jobs)]
    ends = [replace(grant.job, state=State.SUCCEEDED) for grant in grants]
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for grant, job in zip(grants, ends, strict=True):
            report.started(grant)
            report.ended(job, 0.01)
    finally:
        sys.setprofile(None)
    return calls / jobs


class RecordedOutput:
    """An output that keeps what is written."""

    def __init__(self) -> None:
        self.missing = 0
        self.writes: list[str] = []

    def write(self, text: str) -> None:
        self.writes.append(text)

    @property
    def lines(self) -> list[str]:
        """The lines, without the time they begin with."""
        return [line[9:] for line in "".join(self.writes).splitlines()]


def granted(job_id: str, kind: str = "resize", **more: object) -> Grant:
    spec = Spec(kind=kind, name=more.pop("name", None), payload=more.pop("payload", Spec().payload))  # type: ignore[arg-type]
    job = Job(
        job_id=job_id,
        spec=spec,
        state=State.ASSIGNED,
        created_at=AT,
        updated_at=AT,
        ready_at=AT,
        fencing_token=7,
        **more,  # type: ignore[arg-type]
    )
    return Grant(job=job, fencing_token=7, attempt=job.attempt, lease_seconds=60)
