"""Apps that cannot be run are refused with the reason; a worker takes only kinds and versions it has."""

from collections import Counter

import msgspec
import pytest

from holdfast.core.state import State
from holdfast.system import usable_cores
from tests.worker.function_workers import FunctionWorkers
from tests.worker.live_processes import PATIENCE_SECONDS

CORES = usable_cores()
APP = """
@app.job
def resize(): return "v1"
"""
NEW = """
@app.job
def resize(): return "v1 in new"

@app.job(kind="resize", version=2)
def resize_2(): return "v2"
"""


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("nowhere:app", "There is no module nowhere"),
        ("plant:nothing", "plant has no nothing"),
        ("plant:resize", "not a holdfast.App"),
        ("plant", "does not name an app: write module:app"),
        ("broken:app", "broken could not be imported: RuntimeError('no')"),
        ("needs:app", "needs could not be imported: No module named 'absent_thing'"),
        ("exits:app", "exits could not be imported: SystemExit(5)"),
        ("dies:app", "ended at once"),
    ],
)
def test_an_app_that_cannot_be_run_is_said_in_words(
    sqlite_workers: FunctionWorkers, app: str, words: str
) -> None:
    sqlite_workers.write("raise RuntimeError('no')", "broken")
    sqlite_workers.write("import absent_thing", "needs")
    sqlite_workers.write("sys.exit(5)", "exits")
    sqlite_workers.write("os._exit(5)", "dies")
    job_id = sqlite_workers.enqueue("resize")

    worker = sqlite_workers.start("w-1", module=app.removesuffix(":app"), app=app)

    assert worker.wait(PATIENCE_SECONDS) not in (0, -9)
    assert words in " ".join(sqlite_workers.worker_log("w-1").split())
    assert "Traceback (most recent call last)" not in sqlite_workers.worker_log("w-1") or "imported" in words
    assert sqlite_workers.types(job_id) == ["job_queued"]


def test_unknown_kinds_and_versions_wait_for_a_worker_that_has_them(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.write(NEW, "new_plant")
    jobs = [sqlite_workers.enqueue(kind) for kind in ("resize", "resize:2", "crop")]
    sqlite_workers.start("old", "--drain")
    assert sqlite_workers.processes["old"].wait(PATIENCE_SECONDS) == 0
    assert sqlite_workers.job(jobs[0]).result == "v1"
    assert sqlite_workers.types(jobs[1]) == ["job_queued"]

    sqlite_workers.start("new", "--drain", module="new_plant")
    assert sqlite_workers.processes["new"].wait(PATIENCE_SECONDS) == 0

    assert sqlite_workers.job(jobs[1]).result == "v2"
    assert sqlite_workers.job(jobs[2]).state is State.QUEUED
    assert sqlite_workers.types(jobs[2]) == ["job_queued"]


@pytest.mark.parametrize(
    ("source", "options", "slots", "threads"),
    [
        ("@app.job\nasync def a(): pass", [], 100, None),
        ("@app.job\nasync def a(): pass", ["-c", "7"], 7, None),
        ("@app.job\ndef a(): pass", ["-c", "7"], 7, None),
        ("@app.job\nasync def a(): pass", ["--commands"], 100, CORES),
        ("@app.job\nasync def a(): pass\n@app.job\ndef b(): pass", [], 100, CORES),
        ("@app.job\ndef a(): pass", [], CORES, CORES),
        ("@app.job(isolation='process')\nasync def a(): pass", [], CORES, CORES),
        ("def undo(): pass\n@app.job(compensate=undo)\nasync def a(): pass", [], CORES, CORES),
    ],
)
def test_coroutines_have_a_hundred_slots_by_default_and_what_takes_a_core_one_per_core(
    sqlite_workers: FunctionWorkers, source: str, options: list[str], slots: int, threads: int | None
) -> None:
    sqlite_workers.write(source)

    worker = sqlite_workers.start("w-1", "--drain", "--log", "json", *options, slots=None)

    assert worker.wait(PATIENCE_SECONDS) == 0
    started = msgspec.json.decode(sqlite_workers.worker_log("w-1").splitlines()[0])
    assert (started["slots"], started.get("threads")) == (slots, threads)


def test_of_many_plain_functions_as_many_run_as_there_are_cores_and_coroutines_beside_them(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.write(
        """
@app.job
def compute():
    Path(f"compute-{os.getpid()}-{threading.get_ident()}").touch()
    while not Path("enough").exists(): time.sleep(0.01)

@app.job
async def wait():
    while not Path("enough").exists(): await asyncio.sleep(0.01)
"""
    )
    computing = [sqlite_workers.enqueue("compute") for _ in range(3 * CORES)]
    waiting = [sqlite_workers.enqueue("wait") for _ in range(3 * CORES)]
    sqlite_workers.start("w-1", slots=None)

    for job_id in waiting:
        sqlite_workers.running(job_id)
    states = Counter(sqlite_workers.job(job_id).state for job_id in computing)
    (sqlite_workers.folder / "enough").touch()

    for job_id in (*computing, *waiting):
        sqlite_workers.succeeded(job_id)
    assert states[State.RUNNING] + states[State.ASSIGNED] <= CORES
    assert f"100 at a time, {CORES} of them not coroutines (-c for more)." in sqlite_workers.worker_log("w-1")
