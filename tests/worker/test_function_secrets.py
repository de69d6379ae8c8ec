"""The key of a worker and the password of its store are in nothing that its functions leave."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from holdfast.core.event import Event
from holdfast.core.retry import Retry
from holdfast.core.state import State
from holdfast.sdk.store_url import url_secrets
from tests.stores.postgres.running_server import fresh_url
from tests.worker.function_workers import FunctionWorkers

KEY = "hf_canary_0123456789abcdef"
PASSWORD = "canary/pass word"
WRITTEN = "canary%2Fpass%20word"
ONCE = Retry(max_failures=1)
SOURCE = """
import json, logging, subprocess
KEY, STORE, PASSWORD = os.environ["HOLDFAST_KEY"], sys.argv[4], "canary/pass word"
print("loaded with", KEY, file=sys.stderr, flush=True)

def show(ctx):
    print(KEY[:9], end="", flush=True)
    print(KEY[9:], json.dumps({"store": STORE}), flush=True)
    logging.getLogger("plant").warning("used %s of %s", KEY, STORE)
    os.write(1, f"raw {KEY}\\n".encode())
    subprocess.run(["sh", "-c", f"echo child {KEY} {STORE} >&2; echo child {KEY}"], check=True)
    ctx.progress(1, 2, f"with {KEY}")
    ctx.emit("opened", key=KEY, nested=[{KEY: [STORE, PASSWORD]}])

@app.job
def plain(ctx: holdfast.Context) -> dict:
    show(ctx)
    ctx.checkpoint({"key": KEY})
    return {"key": KEY, "store": [STORE]}

@app.job
def fails(ctx: holdfast.Context) -> None:
    show(ctx)
    raise ValueError(f"refused {KEY} at {STORE}")

@app.job
async def waits(ctx: holdfast.Context) -> None:
    await asyncio.sleep(0)
    show(ctx)
    raise type(KEY, (Exception,), {})(PASSWORD)

@app.job(isolation="process")
def apart(ctx: holdfast.Context) -> None:
    show(ctx)
    sys.stderr.flush()
    os.write(2, f"last words {KEY}".encode())
    os._exit(3)
"""


def shown(event: Event) -> bytes:
    return msgspec.json.encode(event) + (event.data or b"")


async def everything(workers: FunctionWorkers, job_ids: list[str]) -> str:
    """Whatever can be read of these jobs, as text."""
    registry = workers._registry
    found = [msgspec.json.encode(await registry.status(job_id)) for job_id in job_ids]
    found += [(await registry.why(job_id)).encode() for job_id in job_ids]
    for job_id in job_ids:
        found += map(shown, (await registry.logs(job_id)).events)
        streams: dict[str | None, bytes] = {}
        for event in (await registry.logs(job_id)).events:
            streams[event.stream] = streams.get(event.stream, b"") + (event.data or b"")
        found += streams.values()
    return b"\n".join(found).decode(errors="replace")


def test_the_workers_key_and_its_stores_password_are_in_nothing_that_functions_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = asyncio.run(fresh_url(tmp_path)).replace("@", f":{WRITTEN}@", 1)
    assert WRITTEN in url
    monkeypatch.setenv("HOLDFAST_KEY", KEY)
    workers = FunctionWorkers(tmp_path, url, SOURCE)
    try:
        kinds = ("plain", "fails", "waits", "apart")
        jobs = [workers.enqueue(kind, retry=Retry(max_failures=1, max_crashes=1)) for kind in kinds]
        workers.start("w-1", "--drain").wait(timeout=120)
        ended = [workers.job(job_id) for job_id in jobs]

        assert [job.state for job in ended[:2]] == [State.SUCCEEDED, State.DEAD_LETTERED]
        assert all(job.ended for job in ended), workers.all_logs()
        told = workers.use(lambda _: everything(workers, jobs)) + workers.all_logs()
        for word in ("raw ***", "child ***", "refused ***", "with ***", "last words ***"):
            assert word in told
        for canary in (KEY, KEY[9:], PASSWORD, WRITTEN, "canary"):
            assert canary not in told, told[told.index(canary) - 300 :][:600]
        left = [path for path in workers.spool.rglob("*") if path.is_file()]
        assert not any(b"canary" in path.read_bytes() for path in left)
    finally:
        workers.close()
        os.environ.pop("HOLDFAST_KEY", None)


def test_an_app_that_cannot_be_loaded_tells_why_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", KEY)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    workers = FunctionWorkers(tmp_path, url, "raise ValueError(f\"no good: {os.environ['HOLDFAST_KEY']}\")\n")
    try:
        workers.start("w-1").wait(timeout=120)

        assert "no good: ***" in workers.worker_log("w-1")
        assert KEY not in workers.worker_log("w-1")
    finally:
        workers.close()


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("postgresql://u:s%40crets@h/db", [":s%40crets@", "s%40crets", "s@crets"]),
        ("postgresql://postgres:postgres@h/db", [":postgres@"]),
        ("postgresql://u@h/db?password=hush%20now&x=1", ["hush%20now", "hush now"]),
        ("sqlite:///jobs.db", []),
        (None, []),
    ],
)
def test_what_of_a_url_is_secret(url: str | None, secrets: list[str]) -> None:
    assert url_secrets(url) == secrets
