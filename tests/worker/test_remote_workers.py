"""Real workers whose outputs are in a bucket, and real workers at a server."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Client, File, State, Task, study
from tests.outputs.bucket_servers import AZURE, S3, Emulator
from tests.worker.live_processes import PATIENCE_SECONDS

APP = """
import holdfast
app = holdfast.App()

@app.job(outputs=["model.bin"])
def train(ctx: holdfast.Context) -> str:
    with ctx.output("model.bin") as file:
        file.write(bytes(9 * 2**20))
    for task in ctx.tasks():
        if task.kind == "aggregation":
            task.save({"sum.csv": b"+".join(one.files["a.csv"] for one in task.results())})
        else:
            task.save({"a.csv": str(task.seed).encode()})
    return "trained"
"""
BUNDLE = "sha256:" + "fa" * 32


def tasks() -> Iterator[Task]:
    return study(bundle=BUNDLE, entrypoint="a:b", parameter_sets=[{"n": 1}], replicates=3, targets=["t"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "plant.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_OUTPUTS", raising=False)
    return tmp_path


def drain(url: str, *options: str) -> str:
    """Run a worker until nothing is left; returns what it printed."""
    words = [sys.executable, "-m", "holdfast", "worker", "plant:app", "--store", url, "--drain"]
    words += ["--spool", os.path.abspath("spool"), *options]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def check_trained(client: Client, outputs: str | None) -> None:
    """A study and an output by name are done once, judged, and never done again."""
    first = client.enqueue("train", outputs=["model.bin"], tasks=tasks())
    options = ("--outputs", outputs) if outputs else ()
    assert "⚠" not in drain(client.url, *options)

    assert first.result(timeout=PATIENCE_SECONDS) == "trained"
    found = first.refresh().found
    assert found is not None
    assert (found.verified, found.reused) == (5, 0)
    again = client.enqueue("train", tasks=tasks())
    assert again.job_id.startswith("cached-")
    assert again.refresh().state is State.SUCCEEDED


@pytest.mark.parametrize("emulator", [S3, AZURE], ids=["s3", "az"])
def test_a_worker_keeps_outputs_in_a_bucket(
    folder: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    place = emulator.address()
    monkeypatch.setenv("HOLDFAST_OUTPUTS", place)  # what clients, workers and runners find alike

    with Client(f"sqlite:///{folder / 'jobs.db'}") as client:
        check_trained(client, None)
    assert list(folder.glob("*.outputs")) == []


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    words = [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", *options]
    words += ["--store", f"sqlite:///{folder / 'jobs.db'}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = next(line for line in server.stderr if "http://" in line)
            found = re.search(r"http://[\w.]+:\d+", line)
            assert found is not None
            yield found[0]
        finally:
            server.send_signal(signal.SIGTERM)


def test_a_worker_at_a_server_keeps_outputs_where_the_server_says(folder: Path) -> None:
    place = str(folder / "results")
    with served(folder, "--outputs", place) as url, Client(url) as client:
        check_trained(client, place)
    assert (folder / "results" / "managed").is_dir()


def test_a_worker_at_a_server_judges_the_files_of_its_own_machine(folder: Path) -> None:
    with served(folder) as url, Client(url) as client:
        whole = client.submit(["touch", "a"], outputs=["a"])
        partial = client.submit(["true"], outputs=["a", File("b")])
        drain(url, "--commands")

        assert whole.refresh().state is State.SUCCEEDED
        assert partial.refresh().state is State.PARTIAL_SUCCESS
