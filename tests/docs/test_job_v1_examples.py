"""The examples of job.v1, run as their readers run them, in both languages, against a real server."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.generated.job.v1.job_connect import JobServiceClientSync
from tests.server.node_programs import EXAMPLES, NODE, node_folder
from tests.server.programs import (
    PATIENCE_SECONDS,
    environment,
    key,
    program,
    service,
    until,
)
from verify.postgres_server import free_port

LANGUAGES = ["py", "ts"]
FAILING = "echo out; echo err >&2; echo more; exit 3"
ORPHAN_SECONDS = 30


class Wire:
    """A copy of the examples beside a server, and the programs in it."""

    def __init__(self, folder: Path, url: str, secret: str | None = None) -> None:
        self.folder = node_folder(folder)
        self.url = url
        self.environment = {"HOLDFAST_KEY": secret} if secret else {}
        self.headers = {"authorization": f"Bearer {secret}"} if secret else {}
        self.jobs = JobServiceClientSync(url)

    def submit(self, script: str) -> str:
        params = pb.JobParams(command="sh", args=["-c", script])
        request = pb.EnqueueJobRequest(job_params=params)
        return self.jobs.enqueue_job(request, headers=self.headers).job_id

    def job(self, job_id: str) -> pb.Job:
        found = self.jobs.get_job(pb.GetJobRequest(job_id=job_id), headers=self.headers).job
        assert found is not None
        return found

    def ended(self, job_id: str) -> pb.Job:
        """The job, once it has ended."""

        def look() -> pb.Job | None:
            job = self.job(job_id)
            return job if job.result is not None else None

        return until(look, "the end of the job")

    @contextmanager
    def worker(self, language: str, *options: str) -> "Iterator[Worker]":
        log = self.folder / f"worker-{language}.log"
        words = (*self._words("worker", language), *options)
        with program(log, *words, cwd=self.folder, **self.environment) as process:
            yield Worker(process, log)

    def monitor(self, language: str, job_id: str) -> "subprocess.CompletedProcess[str]":
        """What a monitor printed, and how it exited."""
        return subprocess.run(
            [*self._words("monitor", language), job_id],
            cwd=self.folder,
            env=environment(**self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def _words(self, name: str, language: str) -> tuple[str | Path, ...]:
        start = sys.executable if language == "py" else NODE
        return start, f"{name}.{language}", "--url", self.url


class Worker:
    """A worker that runs, and what it has printed so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    def said(self, words: str) -> None:
        """Return once it has said this."""
        until(lambda: True if words in self.log.read_text() else None, f"a worker to say {words}")

    def stopped(self) -> int:
        """How it exits when it is told to."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("monitor", LANGUAGES)
@pytest.mark.parametrize("worker", LANGUAGES)
def test_a_command_that_fails_is_seen_to_fail_by_everybody(worker: str, monitor: str, tmp_path: Path) -> None:
    with service(tmp_path, "--poll", "1s") as url:
        wire = Wire(tmp_path, url)
        with wire.worker(worker) as running:
            job_id = wire.submit(FAILING)

            seen = wire.monitor(monitor, job_id)
            job = wire.ended(job_id)
            running.said(f"{job_id} exit code 3")
            exited = running.stopped()

    assert (seen.returncode, seen.stderr) == (3, "exit code 3\n")
    assert sorted(seen.stdout.split()) == ["err", "more", "out"]
    assert (job.state, job.attempt) == (pb.JobState.FAILED, 1)
    assert job.result is not None
    assert (job.result.success, job.result.exit_code) == (False, 3)
    assert exited == 0


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_command_that_succeeds_does_so_for_holders_of_a_key(language: str, tmp_path: Path) -> None:
    secret = key(tmp_path, "submit,work,observe")
    with service(tmp_path, "--poll", "1s", "--keys") as url:
        wire = Wire(tmp_path, url, secret)
        with wire.worker(language) as running:
            job_id = wire.submit("seq 30000")

            seen = wire.monitor(language, job_id)
            job = wire.ended(job_id)
            exited = running.stopped()
        wire.environment = {}
        unknown = wire.monitor(language, job_id)

    assert (seen.returncode, seen.stderr) == (0, "exit code 0\n")
    assert seen.stdout.split() == [str(number) for number in range(1, 30001)]
    assert job.state == pb.JobState.COMPLETED
    assert exited == 0
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "Authorization: Bearer" in unknown.stderr


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_command_that_cannot_start_fails(language: str, tmp_path: Path) -> None:
    with service(tmp_path, "--poll", "1s") as url:
        wire = Wire(tmp_path, url)
        request = pb.EnqueueJobRequest(job_params=pb.JobParams(command="/no/such/program"))
        job_id = wire.jobs.enqueue_job(request).job_id
        with wire.worker(language):
            seen = wire.monitor(language, job_id)
            job = wire.ended(job_id)

    assert (seen.returncode, seen.stdout) == (1, "")
    assert "/no/such/program" in seen.stderr
    assert job.result is not None
    assert (job.state, job.result.exit_code) == (pb.JobState.FAILED, 127)


@pytest.mark.slow
@pytest.mark.parametrize(("language", "other"), [LANGUAGES, LANGUAGES[::-1]])
def test_a_job_stays_with_its_worker_until_it_is_cancelled(language: str, other: str, tmp_path: Path) -> None:
    visible = ("--visibility", "6")
    with service(tmp_path, "--poll", "1s") as url:
        wire = Wire(tmp_path, url)
        job_id = wire.submit("echo $$; exec sleep 300")
        with wire.worker(language, *visible) as running:
            running.said(f"{job_id} attempt 1")
            with wire.worker(other, *visible) as idle:
                time.sleep(7.5)
                kept = wire.job(job_id)
                wire.jobs.cancel_job(pb.CancelJobRequest(job_id=job_id))
                seen = wire.monitor(other, job_id)
                job = wire.ended(job_id)
                assert idle.log.read_text() == ""

    assert (kept.state, kept.attempt) == (pb.JobState.RUNNING, 1)
    assert (seen.returncode, seen.stderr) == (143, "exit code 143\n")
    assert job.state == pb.JobState.CANCELLED
    assert not Path("/proc", seen.stdout.strip()).exists()


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_that_has_lost_its_job_stops_the_command_and_goes_on(language: str, tmp_path: Path) -> None:
    with service(tmp_path, "--poll", "1s") as url:
        wire = Wire(tmp_path, url)
        job_id = wire.submit("echo $$ > pid; exec sleep 300")
        with wire.worker(language, "--visibility", "4") as running:
            pid = until(lambda: read(wire.folder / "pid"), "the command")
            wire.jobs.cancel_job(pb.CancelJobRequest(job_id=job_id, hard=True))
            running.said(f"{job_id} given up")
            until(lambda: None if Path("/proc", pid).exists() else True, "the command to end")
            after = wire.submit("exit 0")
            running.said(f"{after} exit code 0")

            assert wire.job(job_id).state == pb.JobState.CANCELLED


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_server_that_comes_back_is_taken_up_where_it_was_left(language: str, tmp_path: Path) -> None:
    options = ("--poll", "1s", "--listen", f"127.0.0.1:{free_port()}")
    script = "echo first; while [ ! -e go ]; do sleep 0.1; done; echo last; exit 5"
    with ThreadPoolExecutor() as threads:
        with service(tmp_path, *options) as url:
            wire = Wire(tmp_path, url)
            job_id = wire.submit(script)
            going = ExitStack()
            running = going.enter_context(wire.worker(language))
            running.said(f"{job_id} attempt 1")
            monitor = threads.submit(wire.monitor, language, job_id)
            time.sleep(1)
        with going:
            (wire.folder / "go").touch()
            time.sleep(1)
            with service(tmp_path, *options):
                seen = monitor.result()
                job = wire.ended(job_id)

    assert (seen.returncode, seen.stdout) == (5, "first\nlast\n")
    assert (job.state, job.attempt) == (pb.JobState.FAILED, 1)


@pytest.mark.slow
def test_a_worker_in_node_that_is_killed_is_followed_by_one_in_python(tmp_path: Path) -> None:
    script = f"echo $$ >> pids; [ $(wc -l < pids) -gt 1 ] && exit 0; exec sleep {ORPHAN_SECONDS}"
    with service(tmp_path, "--poll", "1s") as url:
        wire = Wire(tmp_path, url)
        pids = wire.folder / "pids"
        job_id = wire.submit(script)
        with wire.worker("ts", "--visibility", "2") as killed:
            until(lambda: read(pids), "the command")
            killed.process.kill()
            killed.process.wait()

            with wire.worker("py", "--visibility", "2") as running:
                job = wire.ended(job_id)
                running.said(f"{job_id} attempt 2")
                running.said(f"{job_id} exit code 0")
            seen = wire.monitor("ts", job_id)
        with suppress(ProcessLookupError):  # what the killed worker could not take along
            os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)

    assert (job.state, job.attempt) == (pb.JobState.COMPLETED, 2)
    assert (seen.returncode, seen.stderr) == (0, "exit code 0\n")


def read(file: Path) -> str | None:
    """What is in the file, once there is something."""
    return (file.read_text().strip() or None) if file.exists() else None


def test_the_readme_names_every_program_and_its_options() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    named = re.findall(r"(?:python|node) (\w+\.(?:py|ts))", page)

    assert {*named} == {"worker.py", "worker.ts", "monitor.py", "monitor.ts"}
    for option in ("--url", "--queue", "--visibility", "HOLDFAST_KEY"):
        assert option in page
