"""A worker from Python: in a script, in a notebook, beside other work, on every store."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

import holdfast
from holdfast import App, Cancelled, Conflict, Context, Handle, Invalid, Retry, State
from tests.sdk import module_jobs
from tests.server.programs import service
from tests.stores.postgres.running_server import fresh_url
from tests.worker.live_processes import wait_until

STORES = ("memory", "sqlite", "postgres", "server")


@contextmanager
def store_url(kind: str, folder: Path) -> Iterator[str]:
    if kind == "server":
        with service(folder) as url:
            yield url
    elif kind == "postgres":
        yield asyncio.run(fresh_url(folder))
    else:
        yield "memory://" if kind == "memory" else f"sqlite:///{folder / 'jobs.db'}"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield app
    app.close()


@pytest.mark.parametrize("kind", STORES)
def test_work_runs_what_is_queued_until_nothing_is_left(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with store_url(kind, tmp_path) as url:
        app = App(url)

        @app.job(queue="sums")
        def add(one: int, other: int) -> int:
            return one + other

        @app.job
        async def double(ctx: Context, number: int) -> int:
            await ctx.checkpoint_async(number)
            return 2 * (ctx.last_checkpoint(int) or 0)

        try:
            sums, twice = add.enqueue(2, 3), double.enqueue(4)

            done = app.work(drain=True)

            assert (sums.result(), twice.result()) == (5, 8)
            assert (done.jobs, done.succeeded, done.states) == (2, 2, {State.SUCCEEDED: 2})
            assert repr(done).startswith("<2 succeeded in ")
            assert app.work(drain=True).jobs == 0
        finally:
            app.close()


def test_what_a_function_prints_and_logs_is_the_output_of_its_job_and_nothing_else_is(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.job
    def speak(ctx: Context) -> None:
        sys.stdout.write("printed\n")
        sys.stdout.buffer.write(b"bytes\n")
        ctx.log.info("logged")

    with app.worker():
        handle = speak.enqueue()
        handle.result(timeout=60)
        sys.stdout.write("beside it\n")

    with holdfast.Client(app.url) as client:
        output = sorted(chunk.text for chunk in client.logs(handle.job_id, follow=False))
    assert "".join(output) == "INFO holdfast.job: logged\nprinted\nbytes\n"
    assert capsys.readouterr().out == "beside it\n"


def test_a_failure_is_counted_and_logged(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(retry=Retry(max_failures=2, backoff=timedelta()))
    def break_down() -> None:
        raise KeyError("b")

    break_down.enqueue()

    done = app.work(drain=True)

    assert (done.states, done.tried_again) == ({State.DEAD_LETTERED: 1}, 1)
    again, ended = [one.getMessage() for one in caplog.records if one.name == "holdfast.worker"]
    assert "break_down failed, attempt 1 of 2" in again
    assert "break_down: dead_lettered after" in ended
    assert "'b'" in ended


def test_a_lease_is_renewed_while_a_function_computes(app: App) -> None:
    """Python gives the interpreter to the worker's thread in between."""

    @app.job(lease="2s", max_crashes=1)
    def compute(ctx: Context) -> bool:
        first = ctx.lease
        while ctx.lease <= first:  # it shrinks until the lease is renewed
            first = min(first, ctx.lease)
            sum(range(1000))
        return True

    handle = compute.enqueue()

    app.work(drain=True)

    assert handle.result() is True


def test_at_the_end_of_the_block_a_job_that_takes_longer_is_given_back(app: App) -> None:
    @app.job
    def slow(ctx: Context) -> None:
        ctx.wait_cancelled()
        ctx.check()

    with app.worker(leave=0) as worker:
        handle = slow.enqueue()
        wait_until(lambda: handle.refresh().state is State.RUNNING)

    job = handle.refresh()
    assert (job.state, job.failures, job.crashes) == (State.QUEUED, 0, 0)
    assert worker.summary.given_back == 1


def test_it_is_in_the_list_of_workers_while_it_works(app: App) -> None:
    @app.job(queue="mail")
    def send() -> None: ...

    def listed() -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        workers = app.background.call(lambda client: client.registry.workers())
        return [(one.app or "", one.queues, one.kinds) for one in workers if not one.stopped]

    with app.worker():
        send.enqueue().result(timeout=60)
        wait_until(lambda: bool(listed()))
        assert listed() == [("__main__", ("mail", "default"), ("send",))]

    assert listed() == []


def test_a_cancelled_job_is_told(app: App) -> None:
    @app.job
    async def waits(ctx: Context) -> None:
        await ctx.cancellation()
        raise Cancelled

    with app.worker():
        handle = waits.enqueue()
        wait_until(lambda: handle.refresh().state is State.RUNNING)
        handle.cancel()
        wait_until(lambda: handle.refresh().ended)

    assert handle.refresh().state is State.CANCELLED


def test_a_function_may_enqueue_and_wait_for_another(app: App) -> None:
    @app.job
    def inner(number: int) -> int:
        return number

    @app.job
    def outer(number: int) -> int:
        return inner.enqueue(number).result(timeout=60)

    @app.job
    async def outer_async(number: int) -> int:
        handle: Handle[int] = await inner.enqueue_async(number)
        return await handle.result_async(timeout=60)

    with app.worker():
        assert outer.enqueue(1).result(timeout=60) == 1
        assert outer_async.enqueue(2).result(timeout=60) == 2


async def test_coroutines_have_a_form_of_their_own(app: App) -> None:
    @app.job
    async def add(one: int, other: int) -> int:
        return one + other

    async with app.worker() as worker:
        handle = await add.enqueue_async(1, 2)
        assert await handle.result_async(timeout=60) == 3
    await add.enqueue_async(3, 4)
    done = await app.work_async(drain=True)

    assert (worker.summary.succeeded, done.succeeded) == (1, 1)


async def test_a_cancelled_coroutine_lets_the_worker_leave_first(app: App) -> None:
    @app.job
    async def slow(ctx: Context) -> None:
        await ctx.cancellation()
        ctx.check()

    handle = await slow.enqueue_async()
    working = asyncio.create_task(app.work_async(leave=0))
    await asyncio.to_thread(wait_until, lambda: handle.refresh().state is State.RUNNING)

    working.cancel()

    with pytest.raises(asyncio.CancelledError):
        await working
    assert (await handle.refresh_async()).state is State.QUEUED


def test_a_worker_is_started_once(app: App) -> None:
    @app.job
    def add() -> None: ...

    worker = app.worker()
    with worker, pytest.raises(Conflict, match=r"app\.worker"):
        worker.start()


def test_what_cannot_be_is_refused(app: App) -> None:
    with pytest.raises(Invalid, match="has no jobs"):
        app.work(drain=True)

    @app.job(isolation="process")
    def apart() -> None: ...

    with pytest.raises(Invalid, match="needs a function that another process can import"):
        app.work(drain=True)
    with pytest.raises(Invalid, match=r"queues=\['default'\]"):
        app.work(queues="default", drain=True)
    with pytest.raises(Invalid, match="at least 1"):
        app.worker(concurrency=0)


def test_functions_of_a_module_run_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{tmp_path / 'jobs.db'}")
    try:
        shared, apart = module_jobs.where.enqueue(), module_jobs.apart.enqueue()
        with module_jobs.app.worker() as worker:
            pids = {shared.result(timeout=60), apart.result(timeout=60), os.getpid()}
    finally:
        module_jobs.app.close()

    assert worker.in_processes
    assert len(pids) == 3


class Script:
    """A script in a folder of its own, and what it says."""

    def __init__(self, folder: Path, source: str, name: str = "script.py") -> None:
        self.file = folder / name
        self.file.write_text(dedent(source))
        self.environment = {
            **os.environ,
            "HOLDFAST_STORE": f"sqlite:///{folder / 'jobs.db'}",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    @contextmanager
    def start(self, *command: str) -> "Iterator[subprocess.Popen[str]]":
        with subprocess.Popen(
            [sys.executable, *(command or (str(self.file),))],
            env=self.environment,
            cwd=self.file.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *command: str, code: int = 0) -> tuple[str, str]:
        with self.start(*command) as process:
            said = process.communicate(timeout=120)
        assert process.returncode == code, said
        return said


HEAD = """
import os, signal, sys, threading, time
import holdfast
app = holdfast.App()

@app.job
def add(one: int, other: int) -> int:
    print("adding", one, other)
    return one + other

@app.job
def slow(ctx: holdfast.Context) -> None:
    ctx.wait_cancelled()
    ctx.check()

@app.job(timeout="200ms", max_failures=1)
def stuck() -> None:
    threading.Event().wait()
"""


def test_a_script_runs_the_functions_that_it_defines(tmp_path: Path) -> None:
    script = HEAD + "handle = add.enqueue(2, 3)\nprint(app.work(drain=True))\nprint(handle.result())\n"

    out, error = Script(tmp_path, script).run()

    summary, result = out.splitlines()
    assert summary.startswith("<1 succeeded in ")
    assert (result, error) == ("5", "")


def test_a_script_ends_although_a_function_never_returns(tmp_path: Path) -> None:
    script = HEAD + "stuck.enqueue(); add.enqueue(1, 2)\nprint(app.work(drain=True))\n"

    out, error = Script(tmp_path, script).run()

    assert "1 dead lettered" in out
    assert "1 succeeded" in out
    assert "It ran longer than its timeout of 200 ms" in error or "timeout of 0.2 s" in error


@pytest.mark.parametrize("drain", [True, False])
def test_ctrl_c_gives_running_jobs_back(tmp_path: Path, drain: bool) -> None:
    script = HEAD + f"print(slow.enqueue().job_id, flush=True)\nprint(app.work(drain={drain}, leave=0))\n"
    told = Script(tmp_path, script)
    with told.start() as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        with holdfast.Client(told.environment["HOLDFAST_STORE"]) as client:
            wait_until(lambda: client.status(job_id).state is State.RUNNING)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
            job = client.status(job_id)

    assert (job.state, job.failures, job.crashes) == (State.QUEUED, 0, 0)
    assert process.returncode == (-signal.SIGINT if drain else 0)
    assert ("1 given back" in out) is not drain


@pytest.mark.parametrize("how", ["a SIGTERM", "the end of the script", "an error in the script"])
def test_a_script_that_ends_gives_running_jobs_back(tmp_path: Path, how: str) -> None:
    work = "app.work(leave=0)" if how == "a SIGTERM" else "app.worker().start()"
    script = (
        HEAD
        + f"""
handle = slow.enqueue()
print(handle.job_id, flush=True)
{work}
while handle.refresh().state != "running":
    time.sleep(0.01)
{"raise ValueError" if "error" in how else ""}
"""
    )
    told = Script(tmp_path, script)
    with told.start() as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        with holdfast.Client(told.environment["HOLDFAST_STORE"]) as client:
            if how == "a SIGTERM":
                wait_until(lambda: client.status(job_id).state is State.RUNNING)
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)

            assert client.status(job_id).state is State.QUEUED
    assert process.returncode == {"a SIGTERM": 143, "the end of the script": 0}.get(how, 1)


KERNEL = """
import ast, asyncio, sys
async def kernel(cells):
    for number, cell in enumerate(cells):
        code = compile(cell, f"<cell {number}>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, vars(sys.modules["__main__"]))
        if result is not None:
            await result
import json
cells = json.loads(sys.argv[1])
del sys.argv[1:]
asyncio.run(kernel(cells))
"""

CELLS = [
    "import holdfast\napp = holdfast.App()",
    "@app.job\ndef fit(alpha: float) -> float:\n    print('fitting')\n    return alpha",
    "@app.job\ndef fit(alpha: float) -> float:\n    print('fitting again')\n    return 2 * alpha",
    "handles = fit.enqueue_many([fit.call(1.0), fit.call(2.0)])",
    "with app.worker():\n    print([one.result(timeout=60) for one in handles])",
    "async with app.worker():\n    print(await (await fit.enqueue_async(3.0)).result_async(timeout=60))",
    "worker = app.worker().start()",
    "@app.job\ndef fit(alpha: float) -> float:\n    return 3 * alpha",
    "print(fit.enqueue(4.0).result(timeout=60))",
    "print(worker.stop())",
    "fit.enqueue(5.0)\nprint(app.work(drain=True))",
    "fit.enqueue(6.0)\nprint(await app.work_async(drain=True))",
]


def test_a_notebook_runs_what_its_cells_define_in_its_running_loop(tmp_path: Path) -> None:
    out, error = Script(tmp_path, "").run("-c", KERNEL, json.dumps(CELLS))

    many, one, changed, *summaries = out.splitlines()
    assert (many, one, changed) == ("[2.0, 4.0]", "6.0", "12.0")
    assert [line.partition(" in ")[0] for line in summaries] == ["<1 succeeded"] * 3
    assert error == ""


def test_a_module_that_begins_a_worker_when_it_is_imported_starts_no_second_one(tmp_path: Path) -> None:
    source = HEAD + "add.enqueue(1, 2)\napp.work(drain=True)\n"

    _, error = Script(tmp_path, source, "shop.py").run("-c", "import shop", code=1)

    assert "would start another one" in error


def test_jobs_of_several_modules_are_all_loaded(tmp_path: Path) -> None:
    Script(tmp_path, "import holdfast\napp = holdfast.App()\n", "base.py")
    for name in ("one", "two"):
        function = f"@app.job\ndef {name}() -> str:\n    return '{name}'\n"
        Script(tmp_path, f"from base import app\n{function}", f"{name}.py")
    source = "import one, two, base\nhandles = [one.one.enqueue(), two.two.enqueue()]\n"
    source += "with base.app.worker() as worker:\n"
    source += "    print(*(h.result(timeout=60) for h in handles), worker.in_processes)\n"

    out, _ = Script(tmp_path, source).run()

    assert out == "one two True\n"
