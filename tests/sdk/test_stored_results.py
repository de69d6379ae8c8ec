"""A result that is too large, or that has no JSON form, is not the end of the work: its caller gets it, or is
told what was lost."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Client, State
from holdfast.core.limits import RESULT_BYTES_MAX
from holdfast.core.retry import Retry
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.runner import stored_result
from holdfast.runner.json_forms import Unencodable
from holdfast.sdk.stored_results import ResultAway
from holdfast.testing import memory_app
from tests.sdk.sample_jobs import finish
from tests.server.programs import service
from tests.worker.function_workers import STORES, FunctionWorkers, open_workers

APP = """
class Model:
    def __repr__(self):
        return "<a model of 3 layers>"

@app.job
def train(n: int):
    return {"loss": float("nan"), "curve": ["\\u00e9\\"\\n"] * n}

@app.job
async def train_async(n: int):
    return train(n)

@app.job
def model():
    return {"loss": 0.5, "model": Model()}

@app.job
def deep():
    value = []
    for _ in range(100):
        value = [value]
    return value
"""
ONCE = Retry(max_failures=1, max_crashes=1)
MANY = 100_000


@pytest.fixture(params=(*STORES, "server"))
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FunctionWorkers]:
    """A worker of the app on each store, and through a server. Only beside a SQLite file is there an output
    store."""
    name: str = request.param
    with open_workers("sqlite" if name == "server" else name, tmp_path, APP) as workers:
        if name != "server":
            workers.start("w-1")
            yield workers
            return
        with service(tmp_path) as url:
            workers.start("w-1", "--outputs", str(tmp_path / "of-the-worker"), url=url)
            workers.url = url
            yield workers


def test_a_result_of_megabytes_is_given_back_and_the_work_is_done_once(workers: FunctionWorkers) -> None:
    with Client(workers.url) as client:
        for kind in ("train", "train_async"):
            handle = client.enqueue(kind, {"n": MANY}, retry=ONCE)

            result = handle.result(timeout=60)

            assert math.isnan(result["loss"])
            assert result["curve"] == ['é"\n'] * MANY
            assert client.result(handle.job_id)["curve"] == result["curve"]  # type: ignore[index]
            job = client.status(handle.job_id)
            assert (job.state, job.attempt) == (State.SUCCEEDED, 1)
            assert isinstance(job.result, dict)
            assert list(job.result) == [
                "holdfast:stored" if workers.url.startswith("sqlite") else "holdfast:logged"
            ]
        [one, _] = client.results()
        assert one["curve"] == result["curve"]
        assert client.enqueue("deep").result(timeout=60)[0][0][0]


def test_a_result_without_a_form_is_told_and_the_rest_of_it_is_kept(workers: FunctionWorkers) -> None:
    with Client(workers.url) as client:
        handle = client.enqueue("model", retry=ONCE)

        with pytest.raises(
            Unencodable, match=r"The result has a plant\.Model, .* It was <a model of 3 layers>"
        ) as caught:
            handle.result(timeout=60)

        assert "Return numbers" in (caught.value.advice or "")
        job = client.status(handle.job_id)
        assert (job.state, job.attempt) == (State.SUCCEEDED, 1)
        assert isinstance(job.result, dict)
        assert job.result["loss"] == 0.5


def test_a_caller_without_the_output_store_is_told_where_the_result_is(tmp_path: Path) -> None:
    with open_workers("sqlite", tmp_path, APP) as workers:
        workers.start("w-1")
        with Client(workers.url) as client:
            handle = client.enqueue("train", {"n": MANY})
            handle.result(timeout=60)
            result = client.status(handle.job_id).result
    other = tmp_path / "elsewhere"
    for words in ("cannot be opened", rf"and this process has {other.as_uri()}\. Give it the same one"):
        with Client(workers.url, outputs=str(other)) as client, pytest.raises(ResultAway, match=words):
            client.result(handle.job_id)
        asyncio.run(DirectoryOutputs.open(other, create=True))
    with Client(workers.url) as client:
        # No result names the file of another job.
        copied = client.enqueue("other")
        finish(client, result)
        with pytest.raises(holdfast.Invalid, match="it has a form that cannot be read"):
            copied.result()
        [stored] = (tmp_path / "jobs.outputs" / "returned" / handle.job_id).iterdir()
        stored.write_bytes(b"[]")
        with pytest.raises(holdfast.HoldfastError, match="damaged"):
            client.result(handle.job_id)
        stored.unlink()
        with pytest.raises(holdfast.NotFound, match="is not there any more"):
            client.result(handle.job_id)


app = holdfast.App()


@app.job
def large(size: int) -> str:
    return "x" * size


@app.job
def pretend(path: str) -> dict[str, dict[str, str | int]]:
    return {"holdfast:stored": {"bytes": 1, "sha256": "0" * 64, "path": path, "store": "s", "place": "p"}}


def test_a_result_at_the_limit_stays_in_its_record() -> None:
    with memory_app(app) as bench:
        assert len(bench.run(large.call(RESULT_BYTES_MAX - 2))) == RESULT_BYTES_MAX - 2
        assert isinstance(bench.jobs()[-1].result, str)
        assert len(bench.run(large.call(RESULT_BYTES_MAX - 1))) == RESULT_BYTES_MAX - 1
        assert isinstance(bench.jobs()[-1].result, dict)


def test_a_result_that_looks_like_a_stored_one_is_the_handlers_own() -> None:
    with memory_app(app) as bench:
        for path in ("returned/other/1.json", "../../etc/passwd"):
            assert bench.run(pretend.call(path))["holdfast:stored"]["path"] == path


@pytest.mark.parametrize("broken", ["a folder that is a file", "too large"])
def test_where_nothing_can_keep_it_the_job_has_succeeded_all_the_same(
    broken: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with memory_app(app) as bench:
        place = tmp_path / "file"
        place.write_text("in the way")
        if broken == "too large":
            monkeypatch.setattr(stored_result, "LOGGED_BYTES_MAX", 1000)
        with app.using_outputs(place.as_uri()):
            worker = bench.worker("other")
            [handle] = large.enqueue_many([large.call(RESULT_BYTES_MAX)])
            worker.drain(until_idle=False)
            worker.close()
            if broken == "too large":
                with pytest.raises(ResultAway, match="262,146 bytes: too many for its record and log"):
                    handle.result(timeout=0)
            else:
                assert len(handle.result(timeout=0)) == RESULT_BYTES_MAX
        assert bench.jobs()[-1].state is State.SUCCEEDED
