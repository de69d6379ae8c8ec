"""Compensations: they see the last checkpoint, have a time limit, and begin when the work has ended."""

from datetime import timedelta

from holdfast.core.catalogue import ReasonCode
from holdfast.core.retry import Retry
from tests.worker.function_workers import FunctionWorkers, costs, dead_letter_reason

APP = """
@app.job
async def naps(seconds: float):
    await asyncio.sleep(seconds)
    return os.getpid()

async def see(ctx: holdfast.Context):
    Path("seen").write_text(str(ctx.last_checkpoint()))

@app.job(compensate=see)
async def keeps_and_fails(ctx: holdfast.Context):
    await ctx.checkpoint_async({"step": 7})
    raise ValueError("no")

async def hang():
    await asyncio.sleep(60)

@app.job(compensate=hang)
async def fails(): raise ValueError("no")

def trace(word):
    with open("trace", "a") as file:
        file.write(f"{word} {os.getpid()}" + chr(10))

def undo(): trace("undo")

@app.job(compensate=undo)
def heedless():
    while True:
        trace("work")
        time.sleep(0.01)
"""
ONCE = Retry(max_failures=1, max_crashes=1)


def test_a_compensation_sees_the_last_checkpoint(shared_workers: FunctionWorkers) -> None:
    job_id = shared_workers.enqueue("keeps_and_fails", retry=ONCE)
    shared_workers.ended(job_id)

    assert shared_workers.file("seen") == "{'step': 7}"
    assert "job_compensated" in shared_workers.types(job_id)


def test_a_compensation_has_the_time_its_handler_had(shared_workers: FunctionWorkers) -> None:
    job_id = shared_workers.enqueue("fails", retry=ONCE, timeout=timedelta(seconds=0.4))

    job = shared_workers.ended(job_id)

    assert dead_letter_reason(job) is ReasonCode.COMPENSATION_FAILED


def test_nothing_is_undone_beside_what_is_still_being_done(sqlite_workers: FunctionWorkers) -> None:
    """A thread that does not heed its timeout is ended with its process, then compensated."""
    sqlite_workers.start("w-1", "-c", "4")
    neighbour = sqlite_workers.enqueue("naps", {"seconds": 2})
    job_id = sqlite_workers.enqueue("heedless", retry=ONCE, timeout=timedelta(seconds=0.5))

    job = sqlite_workers.ended(job_id)
    ran = sqlite_workers.succeeded(neighbour)

    words = [line.split() for line in (sqlite_workers.folder / "trace").read_text().splitlines()]
    assert [word for word, _ in words].count("undo") == 1
    assert words[-1][0] == "undo"
    assert words[-1][1] != words[0][1]
    assert dead_letter_reason(job) is ReasonCode.TIMEOUT
    assert "job_compensated" in sqlite_workers.types(job_id)
    assert costs(ran) == (2, 0, 0)
    assert ran.result != int(words[0][1])
