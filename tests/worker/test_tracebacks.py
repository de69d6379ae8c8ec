"""Tracebacks of failed handlers: what is on record, where it begins, and what is hidden in it."""

import re
from pathlib import Path

import pytest

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.job import Failure, Job
from holdfast.core.retry import Retry
from holdfast.core.tracebacks import TRACEBACK_CHARACTERS_MAX
from tests.worker.function_workers import FunctionWorkers

ONCE = Retry(max_failures=1)
SECRET = "hf_canary_0123456789abcdef"
APP = """
import json

def price(row): return row["b"]

@app.job
def plain(): price({"a": 1})

@app.job
async def coroutine():
    await asyncio.sleep(0)
    price({"a": 1})

@app.job(isolation="process")
def apart(): price({"a": 1})

@app.job
def library(): json.loads("{")

@app.job
def chained():
    try: price({})
    except KeyError as error: raise RuntimeError("no price") from error

def down(n):
    if n == 400: raise ValueError("the bottom")
    further(n)

def further(n): down(n + 1)

@app.job
def deep(): down(0)

@app.job
def wordy(): raise ValueError("x" * 100_000 + "the end")

@app.job
def quits(): sys.exit("no more")

class Odd(Exception):
    def __str__(self): raise RuntimeError("no words")

@app.job
def odd(): raise Odd

@app.job
def group():
    raise ExceptionGroup("several", [KeyError("a"), OSError("b")])

@app.job
def leaks():
    key = os.environ["HOLDFAST_KEY"]
    raise ValueError("z" * 20_000 + (key + "y") * 5_000 + key)
"""
PLAIN = re.compile(
    r"""Traceback \(most recent call last\):
  File "[^"]*/plant.py", line \d+, in (plain|coroutine|apart)
    (def \w+\(\): )?price\({"a": 1}\)
  File "[^"]*/plant.py", line \d+, in price
    def price\(row\): return row\["b"\]
[ ~^]*
KeyError: 'b'\Z"""
)


def end(workers: FunctionWorkers, kind: str) -> Job:
    job_id = workers.enqueue(kind, retry=ONCE)
    return workers.ended(job_id)


def error_of(workers: FunctionWorkers, kind: str) -> tuple[Failure, str]:
    job = end(workers, kind)
    assert job.error is not None
    assert job.error.traceback is not None, job.error
    return job.error, job.error.traceback


@pytest.mark.parametrize("kind", ["plain", "coroutine", "apart"])
def test_it_begins_with_the_first_frame_of_the_handler(shared_workers: FunctionWorkers, kind: str) -> None:
    job = end(shared_workers, kind)

    assert job.error is not None
    assert (job.error.message, job.error.code) == ("'b'", "KeyError")
    trace = re.sub(r"\n +[~^]+\n", "\n", job.error.traceback or "")
    assert PLAIN.match(trace.replace("\nKeyError", "\n\nKeyError")), job.error.traceback
    assert job.reason == "exhausted_retries: KeyError: 'b'"
    assert job.dead_letter is not None
    assert job.dead_letter.last_error == "KeyError: 'b'"


def test_it_is_published_once_with_the_output_of_the_attempt(shared_workers: FunctionWorkers) -> None:
    job = end(shared_workers, "plain")

    found = [e for e in shared_workers.log(job.job_id) if e.event_type == WorkerEventType.PROCESS_ERROR]
    assert job.error is not None
    assert [event.attributes for event in found] == [
        {"error_message": "'b'", "traceback": job.error.traceback}
    ]


def test_the_frames_of_libraries_below_the_handler_are_kept(shared_workers: FunctionWorkers) -> None:
    error, trace = error_of(shared_workers, "library")

    assert error.code == "JSONDecodeError"
    assert "/json/decoder.py" in trace
    assert trace.index("in library") < trace.index("/json/__init__.py")


def test_causes_are_kept(shared_workers: FunctionWorkers) -> None:
    _, trace = error_of(shared_workers, "chained")

    assert trace.startswith("Traceback")
    assert trace.index("KeyError: 'b'") < trace.index("direct cause") < trace.index("RuntimeError: no price")
    assert "holdfast/runner" not in trace


def test_all_errors_of_a_group_are_shown(shared_workers: FunctionWorkers) -> None:
    _, trace = error_of(shared_workers, "group")

    assert "ExceptionGroup: several (2 sub-exceptions)" in trace
    assert "| KeyError: 'a'" in trace
    assert "| OSError: b" in trace


@pytest.mark.parametrize(("kind", "last"), [("deep", "ValueError: the bottom"), ("wordy", "the end")])
def test_of_a_long_one_beginning_and_end_are_kept(
    shared_workers: FunctionWorkers, kind: str, last: str
) -> None:
    _, trace = error_of(shared_workers, kind)

    assert len(trace) <= TRACEBACK_CHARACTERS_MAX
    assert re.search(r"\n  … \[[\d,]+ characters left out\]\n", trace)
    assert f", in {kind}\n" in trace
    assert trace.endswith(last)


def test_an_exit_and_an_error_without_words_have_one(shared_workers: FunctionWorkers) -> None:
    quitted, trace = error_of(shared_workers, "quits")
    assert trace.endswith("SystemExit: no more")
    assert quitted.summary == "SystemExit: The handler called exit('no more')."

    odd, trace = error_of(shared_workers, "odd")
    assert odd.summary == "Odd, whose message cannot be shown"
    assert "in odd" in trace


def test_a_secret_is_hidden_in_it_wherever_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", SECRET)
    workers = FunctionWorkers(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}", APP)
    try:
        job_id = workers.enqueue("leaks", retry=ONCE)
        workers.start("w-1", "--drain").wait(timeout=120)

        error = workers.job(job_id).error
        assert error is not None
        assert (error.traceback or "").endswith("y***y***")
        assert "canary" not in repr(workers.log(job_id)) + repr(workers.job(job_id))
    finally:
        workers.close()
