"""A scrape is quick, and holds up no other call."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds
from tests.server.metrics_page import scrape
from tests.server.raw_http_client import ThreadedServer, threaded_server


async def _busy(registry: LocalRegistry, many: int) -> None:
    """So many queues and kinds, with a job that succeeded and one that waits in each."""
    specs = [Spec(queue=f"queue-{n}", kind=f"kind-{n}") for n in range(many)]
    for turn in range(2):
        requests = [JobRequest(spec=spec, job_id=f"{spec.kind}-{turn}") for spec in specs]
        await registry.enqueue_many(requests, actor="user:ana")
    for spec in specs:
        await registry.acquire(f"{spec.kind}-0", owner="w")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    path = tmp_path_factory.mktemp("metrics") / "jobs.db"
    store = asyncio.run(SqliteStore.open(path, ids=SystemIds()))
    with threaded_server(store=store) as server:
        server.do(_busy(server.registry, 200))
        yield server


def test_a_scrape_of_200_queues_takes_less_than_50_ms(busy: ThreadedServer) -> None:
    def seconds() -> float:
        """Of the processor, for both sides of it: of another process nothing is known."""
        began = time.process_time()
        assert busy.send("/metrics", method="GET").status == 200
        return time.process_time() - began

    found = scrape(busy)

    assert len(found.values("holdfast_queue_jobs", "queue")) == 200
    assert min(seconds() for _ in range(10)) < 0.05


def test_others_go_on_while_the_page_is_made(busy: ThreadedServer) -> None:
    async def longest() -> tuple[float, float]:
        """The longest that the loop did nothing else, and all of it, in seconds of the processor."""
        page = asyncio.create_task(busy.served.app._probes._metrics.page())
        begun = last = time.thread_time()
        most = 0.0
        while not page.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            most, last = max(most, now - last), now
        return most, last - begun

    found = [busy.do(longest()) for _ in range(5)]

    assert min(most / whole for most, whole in found) < 0.5


def test_a_page_is_made_once_for_all_who_ask_meanwhile(busy: ThreadedServer) -> None:
    async def ask() -> int:
        metrics = busy.served.app._probes._metrics
        return len({id(page) for page in await asyncio.gather(*(metrics.page() for _ in range(9)))})

    assert busy.do(ask()) == 1
