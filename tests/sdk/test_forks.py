"""An app whose process forks or ends."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, Client, State
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.background import BackgroundClient
from tests.sdk.sample_jobs import add

SECONDS = 120.0
FORKING = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns


@pytest.fixture
def background() -> Iterator[BackgroundClient]:
    made = BackgroundClient(lambda: AsyncClient("memory://"))
    yield made
    made.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.close()


async def where(_: AsyncClient) -> str:
    return threading.current_thread().name


@FORKING
def test_a_forked_child_has_a_background_of_its_own(app: App) -> None:
    job = app.job(add)
    job.enqueue(1)

    child = os.fork()
    if child == 0:
        code = 1
        try:
            job.enqueue(2)
            asyncio.run(job.enqueue_async(3))
            app.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    job.enqueue(4)
    assert app.background.call(lambda client: client.counts()) == {State.QUEUED: 4}


@FORKING
def test_a_fork_in_the_middle_of_a_call_does_not_hang_the_child(
    background: BackgroundClient,
) -> None:
    """The child is made while another thread holds the lock."""
    with background._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if threading_call(background) else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def threading_call(background: BackgroundClient) -> bool:
    """Call from another thread than the one that held the lock; False if it hangs."""
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(background.call(where)), daemon=True)
    asking.start()
    asking.join(SECONDS)
    return answers == ["holdfast-background"]


SCRIPT = """
import holdfast
app = holdfast.App({url!r})
@app.job
def add(first: int) -> int:
    return first
add.enqueue(1)
events = holdfast.Client({url!r}).events()
next(events)
print("done")
"""


def test_a_process_that_just_ends_closes_its_store(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    script = SCRIPT.format(url=f"sqlite:///{file}")

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.db"]
    with Client(f"sqlite:///{file}") as client:
        assert client.counts() == {State.QUEUED: 1}
