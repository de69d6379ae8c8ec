"""The store cut off: for longer than the lease the work stops, for shorter nothing is lost."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from floor import STORES, Floor, opened, patient
from shop import alive

from holdfast.core.state import State
from postgres_world import server
from verify.wire_proxy import WireProxy

APP = """
@app.job
async def coroutine(ctx: holdfast.Context):
    Path(f"{ctx.job_id}-{ctx.attempt}").write_text("here")
    if ctx.attempt > 1:
        await asyncio.sleep(2.5)
        return "again"
    try:
        for n in range(400):
            print("line", n)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        Path(f"{ctx.job_id}-stopped").write_text(f"{ctx.lease.total_seconds()}")
        raise
    return "zombie"

@app.job
def thread(ctx: holdfast.Context):
    Path(f"{ctx.job_id}-{ctx.attempt}").write_text("here")
    if ctx.attempt > 1: return "again"
    ctx.wait_cancelled(20)
    Path(f"{ctx.job_id}-stopped").write_text(f"{ctx.lease.total_seconds()}")
    return "zombie"

@app.job(isolation="process")
def process(ctx: holdfast.Context):
    Path(f"{ctx.job_id}-{ctx.attempt}").write_text(str(os.getpid()))
    if ctx.attempt > 1: return "again"
    time.sleep(20)
    return "zombie"

@app.job
def talks(ctx: holdfast.Context):
    for n in range(100):
        print("line", n)
        time.sleep(0.01)
    ctx.checkpoint(100)
    return "talked"
"""


class Line:
    """A floor, and the way from its workers to the store, which can be cut."""

    def __init__(self, floor: Floor, proxy: WireProxy | None) -> None:
        self.floor = floor
        self.proxy = proxy
        self.url = proxy.through(floor.url) if proxy else floor.url

    @contextmanager
    def cut(self) -> Iterator[None]:
        if self.proxy is not None:
            self.proxy.refuse()
            self.proxy.cut()
            yield
            self.proxy.accept()
            return
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            connection = apsw.Connection(str(self.floor.folder / "jobs.db"))
            connection.set_busy_timeout(5000)
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            free.wait(30)
            connection.execute("ROLLBACK")
            connection.close()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(10)
        yield
        free.set()
        holder.join()


@pytest.fixture(params=STORES)
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    with opened(request.param, tmp_path, APP) as floor:
        if request.param == "sqlite":
            yield Line(floor, None)
        else:
            with WireProxy(server().port) as proxy:
                yield Line(floor, proxy)


def test_cut_off_for_longer_than_the_lease_the_work_stops_before_its_end(line: Line) -> None:
    floor = line.floor
    floor.worker("w-1", url=line.url)
    jobs = {kind: floor.enqueue(kind) for kind in ("coroutine", "thread", "process")}
    for job_id in jobs.values():
        floor.file(f"{job_id}-1")
        floor.running(job_id)
    pid = int(floor.file(f"{jobs['process']}-1"))

    with line.cut():
        cut_at = time.monotonic()
        left = [float(floor.file(f"{jobs[kind]}-stopped", 4)) for kind in ("coroutine", "thread")]
        patient(lambda: not alive(pid), 4)
        stopped_after = time.monotonic() - cut_at
        time.sleep(max(0.0, 3 - stopped_after))

    assert stopped_after < 2
    assert all(seconds > 0 for seconds in left)
    for job_id in jobs.values():
        job = floor.succeeded(job_id, 15)
        assert (job.result, job.attempt, job.crashes) == ("again", 2, 1)
    assert "has a fault" not in floor.said("w-1")
    floor.sound()


def test_cut_off_for_a_moment_nothing_is_lost_and_nothing_doubled(line: Line) -> None:
    floor = line.floor
    floor.worker("w-1", "--lease", "5s", url=line.url)
    job_id = floor.enqueue("talks", lease=timedelta(seconds=5))
    floor.running(job_id)

    with line.cut():
        time.sleep(1.6)
    job = floor.succeeded(job_id, 15)

    assert (job.result, job.attempt, job.crashes, job.checkpoint) == ("talked", 1, 0, 100)
    assert floor.output(job_id) == b"".join(b"line %d\n" % n for n in range(100))
    assert job.state is State.SUCCEEDED
    assert floor.leave("w-1") == 0
