"""The examples, run as their readers run them: copied to a folder, with real workers."""

import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

import holdfast
from holdfast.core.job import Job

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


class Example:
    """A copy of one example, its store, and the programs that run on it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder / name
        shutil.copytree(ROOT / "examples" / name, self.folder)
        self.url = f"sqlite:///{self.folder / 'holdfast.db'}"
        binaries = Path(sys.executable).parent
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "HOLDFAST_STORE"},
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def main(self) -> str:
        """What it prints, run as its first lines say."""
        process = subprocess.Popen(
            [sys.executable, f"{self.name}.py"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, told = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # workers it may have left
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        assert process.returncode == 0, told
        return said

    @contextmanager
    def worker(self, name: str, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
        command = [sys.executable, "-m", "holdfast", "worker", f"{self.name}:app", "--name", name]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *options], cwd=self.folder, env=self.environment, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def jobs(self) -> list[Job]:
        with holdfast.Client(self.url) as client:
            return list(client.list())

    def span(self, job: Job) -> tuple[datetime, datetime]:
        """When the process of a command began, and when it ended."""
        with holdfast.Client(self.url) as client:
            times = {event.event_type: event.occurred_at for event in client.events(job.job_id)}
        return times["process_start"], times["process_end"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_thumbnail_service_makes_small_pictures_and_parks_what_is_none(tmp_path: Path) -> None:
    example = Example("thumbnails", tmp_path)

    said = example.main().splitlines()

    pictures = example.folder / "pictures"
    jobs = {job.spec.name: job for job in example.jobs()}
    assert read_png(pictures / "dawn.png")[:2] == (64, 40)
    assert read_png(pictures / "noon.png")[:2] == (64, 102)
    width, height, rows = read_png(pictures / "late.png")
    assert (width, height) == (64, 64)
    assert rows[32][32 * 3 : 33 * 3] == bytes((255, 220, 80))
    assert rows[0][:3] == bytes((200, 60, 90))
    assert sorted(path.name for path in pictures.glob("*.png*")) == [
        "dawn.png",
        "late.png",
        "noon.png",
    ]
    assert jobs["late"].failures >= 1
    assert jobs["broken"].failures == 1
    assert "broken: dead_lettered, validation_failed" in said[2]
    assert jobs["huge"].crashes == 1
    assert said[3].endswith("It used more memory than its limit of 160 MiB.")


def read_png(path: Path) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of a picture without filters, every checksum compared."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    rest = data[8:]
    while rest:
        [length] = struct.unpack(">I", rest[:4])
        name, body = rest[4:8], rest[8 : 8 + length]
        assert struct.unpack(">I", rest[8 + length : 12 + length])[0] == zlib.crc32(name + body)
        chunks[name] = body
        rest = rest[12 + length :]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    pixels = zlib.decompress(chunks[b"IDAT"])
    stride = width * 3 + 1
    assert len(pixels) == stride * height
    return width, height, [pixels[y * stride + 1 : (y + 1) * stride] for y in range(height)]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_frozen_worker_that_pays_late_is_refused_by_the_bank(tmp_path: Path) -> None:
    example = Example("payments", tmp_path)

    said = example.main().splitlines()

    thawed = next(n for n, line in enumerate(said) if "is thawed" in line)
    assert "bank: order-1002: 59.00 charged under token 2" in said[:thawed]
    assert said[thawed + 1 :] == [
        "bank: order-1002: 60.00 refused. Token 1 is stale: order-1002 has seen token 2."
    ]
    with sqlite3.connect(example.folder / "bank.db") as books:
        charges = dict(books.execute("SELECT order_id, cents FROM charge"))
    books.close()
    assert charges == {"order-1001": 2500, "order-1002": 5900, "order-1003": 1200}
    jobs = {job.spec.lock: job for job in example.jobs()}
    assert {job.state for job in jobs.values()} == {holdfast.State.SUCCEEDED}
    assert (jobs["order-1002"].result, jobs["order-1002"].attempt) == (5900, 2)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_training_whose_worker_is_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    example = Example("training", tmp_path)

    said = example.main()

    [job] = example.jobs()
    assert job.crashes == 1
    assert isinstance(job.result, dict)
    began = job.result.pop("began_at")
    assert isinstance(began, int)
    assert 10 <= began < 60
    assert f"began at epoch {began} of 60" in said

    with holdfast.Client(example.url) as client, example.worker("undisturbed", "--drain"):
        undisturbed = client.enqueue("train").result(timeout=PATIENCE_SECONDS)

    assert undisturbed.pop("began_at") == 0
    assert undisturbed == job.result
    assert undisturbed["loss"] < 0.5


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_training_that_is_cancelled_keeps_what_it_has_learnt(tmp_path: Path) -> None:
    example = Example("training", tmp_path)
    arguments = {"epochs": 1_000_000, "save_every": 1_000_000}

    with holdfast.Client(example.url) as client, example.worker("w"):
        job = client.enqueue("train", arguments)
        for event in client.events(job.job_id):
            if event.event_type == "custom":
                break
        assert client.status(job.job_id).checkpoint is None
        job.cancel()
        ended = client.wait(job.job_id, timeout=PATIENCE_SECONDS)
        kept = ended.checkpoint
        assert isinstance(kept, dict)
        epoch = kept["epoch"]
        assert isinstance(epoch, int)
        rest = client.enqueue("train", {"epochs": epoch + 1, "start": kept})
        result = rest.result(timeout=PATIENCE_SECONDS)

    assert ended.state is holdfast.State.CANCELLED
    assert ended.reason is not None
    assert f"Stopped after epoch {epoch}." in ended.reason
    assert (result["began_at"], result["epochs"]) == (epoch, epoch + 1)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_pipeline_runs_its_commands_in_order_with_one_sort_at_a_time(tmp_path: Path) -> None:
    example = Example("pipeline", tmp_path)

    said = example.main().splitlines()

    assert said[:2] == [f"{10007 + day} of 200000 numbers differ" for day in (1, 2)]
    assert sorted(said[2:]) == [f"Day {day}: {said[day - 1]}." for day in (1, 2)]
    jobs = {job.spec.name or job.job_id: job for job in example.jobs()}
    assert len(jobs) == 10
    assert {job.state for job in jobs.values()} == {holdfast.State.SUCCEEDED}
    for day in (1, 2):
        steps = [jobs[f"{name} {day}"] for name in ("fetch", "sort", "summarise")]
        times = [moment for step in steps for moment in example.span(step)]
        assert times == sorted(times)
        assert {job.correlation for job in steps} == {jobs[f"pipeline {day}"].job_id}
        numbers = (example.folder / "data" / f"{day}.sorted").read_text().split()
        assert numbers == sorted(numbers, key=int)
    first, second = sorted(example.span(jobs[f"sort {day}"]) for day in (1, 2))
    assert first[1] <= second[0]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_sweep_makes_again_exactly_what_was_missing_and_then_nothing(tmp_path: Path) -> None:
    example = Example("sweep", tmp_path)

    said = example.main().splitlines()

    jobs = {job.job_id: job for job in example.jobs()}
    [resumed] = [job for job in jobs.values() if job.spec.resumed_from]
    first, again = jobs[resumed.spec.resumed_from or ""], jobs[said[-2].split()[-1]]
    assert len(jobs) == 3
    assert {job.state for job in jobs.values()} == {holdfast.State.SUCCEEDED}
    assert said[-1] == "Nothing was run for it: all 8 outputs are there already."
    assert again.job_id.startswith("cached-")

    lacking = [line.split()[0] for line in said if "missing  -" in line]
    with holdfast.Client(example.url) as client:
        logs = {job_id: "".join(piece.text for piece in client.logs(job_id)) for job_id in jobs}
        [partial] = [e for e in client.events(first.job_id) if e.to_state == "partial_success"]
    made = {job_id: re.findall("made (.+)", log) for job_id, log in logs.items()}
    assert len(lacking) == 4
    assert made[resumed.job_id] == lacking
    assert len(made[first.job_id]) == 4
    assert not {*made[first.job_id]} & {*lacking}
    assert made[again.job_id] == []
    assert partial.attributes["found"]["missing"] == 4  # type: ignore[index]
    assert "4 of 8 outputs verified, 4 missing." in said
    assert "8 of 8 outputs verified." in said
    assert example.main().splitlines() == said[-2:]

    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    shown = page.partition("$ python sweep.py\n")[2].partition("\n```")[0].splitlines()
    assert len(shown) > 10
    assert {shape(line) for line in shown} - {shape(line) for line in said} == {"[...]"}


def shape(line: str) -> str:
    """A line without what differs from run to run: times, ids, checksums, and how wide that makes it."""
    return re.sub(r"\s+", " ", re.sub(r"\bvm-\d+|[0-9a-f]{4,}|\d+ ms|\d\d:\d\d:\d\d", "#", line))


def test_the_readme_of_the_examples_names_every_one() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")

    commands = re.findall(r"cd (\w+) && (?:python (\w+)\.py|pip [^`]*uvicorn (\w+):)", page)
    named = [(folder, script or module) for folder, script, module in commands]

    found = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
    assert [*sorted(named), ("wire", "README")] == [
        (name, "README" if name == "wire" else name) for name in found
    ]
    assert "(wire/README.md)" in page
