"""What functions and their children write is kept with the job, whatever it is and however much."""

from holdfast.core.retry import Retry
from tests.worker.function_workers import FunctionWorkers, costs

APP = """
import subprocess

@app.job
async def naps(seconds: float):
    await asyncio.sleep(seconds)
    return os.getpid()

@app.job
def floods(size: int): print("x" * size)

@app.job
def writes_bytes(): sys.stdout.buffer.write(b"raw" + bytes([255, 10]))

@app.job(isolation="process")
def echoes():
    subprocess.run(["sh", "-c", "echo said"], check=True)
    return os.getpid()
"""
COUNTS = """
@app.job
def counts():
    for n in range(250_000): print(f"{n:019d}")
"""
ONCE = Retry(max_failures=1, max_crashes=1)


def test_seventy_million_characters_are_kept_and_the_worker_lives(
    shared_workers: FunctionWorkers,
) -> None:
    neighbour = shared_workers.enqueue("naps", {"seconds": 1})
    job_id = shared_workers.enqueue("floods", {"size": 70_000_000}, retry=ONCE)

    assert costs(shared_workers.succeeded(job_id)) == (1, 0, 0)
    assert costs(shared_workers.succeeded(neighbour)) == (1, 0, 0)
    output = shared_workers.output(job_id)
    assert len(output) == 70_000_001
    assert output.count(b"x") == 70_000_000


def test_what_is_written_as_bytes_or_by_a_child_is_kept_with_the_job(
    shared_workers: FunctionWorkers,
) -> None:
    written = shared_workers.enqueue("writes_bytes")
    echoed = shared_workers.enqueue("echoes")
    shared_workers.succeeded(written)
    shared_workers.succeeded(echoed)

    assert shared_workers.output(written) == b"raw\xff\n"
    assert shared_workers.output(echoed) == b"said\n"


def test_no_line_of_much_output_is_lost_or_out_of_order(sqlite_workers: FunctionWorkers) -> None:
    """20 MB by a command, 5 MB by a function, at the same time."""
    sqlite_workers.write(COUNTS)
    function = sqlite_workers.enqueue("counts")
    command = sqlite_workers.enqueue("command", {"argv": ["seq", "-f", "%019.0f", "0", "999999"]})
    sqlite_workers.start("w-1", "--commands")

    sqlite_workers.succeeded(command)
    sqlite_workers.succeeded(function)

    for job_id, count in ((command, 1_000_000), (function, 250_000)):
        expected = b"".join(b"%019d\n" % n for n in range(count))
        assert sqlite_workers.output(job_id) == expected
