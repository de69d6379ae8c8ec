"""The store cut off: for longer than the lease the work stops, for shorter nothing is lost."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from holdfast.core.state import State
from tests.stores.postgres.running_server import server
from tests.worker.function_workers import STORES, FunctionWorkers, open_workers
from tests.worker.live_processes import PATIENCE_SECONDS, alive, wait_until
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


class StoreLink:
    """Workers, and the way from its workers to the store, which can be cut."""

    def __init__(self, workers: FunctionWorkers, proxy: WireProxy | None) -> None:
        self.workers = workers
        self.proxy = proxy
        self.url = proxy.through(workers.url) if proxy else workers.url

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
            connection = apsw.Connection(str(self.workers.folder / "jobs.db"))
            connection.set_busy_timeout(5000)
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            free.wait(PATIENCE_SECONDS)
            connection.execute("ROLLBACK")
            connection.close()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(PATIENCE_SECONDS)
        yield
        free.set()
        holder.join()


@pytest.fixture(params=STORES)
def link(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLink]:
    with open_workers(request.param, tmp_path, APP) as workers:
        if request.param == "sqlite":
            yield StoreLink(workers, None)
        else:
            with WireProxy(server().port) as proxy:
                yield StoreLink(workers, proxy)


def test_cut_off_for_longer_than_the_lease_the_work_stops_before_its_end(link: StoreLink) -> None:
    workers = link.workers
    workers.start("w-1", url=link.url)
    jobs = {kind: workers.enqueue(kind) for kind in ("coroutine", "thread", "process")}
    for job_id in jobs.values():
        workers.file(f"{job_id}-1")
        workers.running(job_id)
    pid = int(workers.file(f"{jobs['process']}-1"))

    with link.cut():
        cut_at = time.monotonic()
        left = [float(workers.file(f"{jobs[kind]}-stopped")) for kind in ("coroutine", "thread")]
        wait_until(lambda: not alive(pid))
        stopped_after = time.monotonic() - cut_at
        time.sleep(max(0.0, 3 - stopped_after))

    assert stopped_after < 2
    assert all(seconds > 0 for seconds in left)
    for job_id in jobs.values():
        job = workers.succeeded(job_id)
        assert (job.result, job.attempt, job.crashes) == ("again", 2, 1)
    assert "has a fault" not in workers.worker_log("w-1")
    workers.assert_consistent()


def test_cut_off_for_a_moment_nothing_is_lost_and_nothing_doubled(link: StoreLink) -> None:
    workers = link.workers
    workers.start("w-1", "--lease", "5s", url=link.url)
    job_id = workers.enqueue("talks", lease=timedelta(seconds=5))
    workers.running(job_id)

    with link.cut():
        time.sleep(1.6)
    job = workers.succeeded(job_id)

    assert (job.result, job.attempt, job.crashes, job.checkpoint) == ("talked", 1, 0, 100)
    assert workers.output(job_id) == b"".join(b"line %d\n" % n for n in range(100))
    assert job.state is State.SUCCEEDED
    assert workers.leave("w-1") == 0
