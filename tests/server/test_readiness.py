"""Readiness: what is not ready, what to do about it, and no secret."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.core.job import Job
from holdfast.ports import Census
from holdfast.server import readiness
from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.shared_store import SharedStore
from tests.server.metrics_page import scrape
from tests.server.raw_http_client import ThreadedServer, threaded_server


def test_a_server_without_its_store_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    clock = ManualClock()
    store = SharedStore(clock, CountingIds())
    with threaded_server(store=store) as server:
        assert server.send("/readyz", method="GET").json() == {"ready": True, "not_ready": []}
        store.make_unavailable(60)
        away = server.send("/readyz", method="GET")
        alive = server.send("/healthz", method="GET")
        found = scrape(server)
        clock.advance(61)
        back = server.send("/readyz", method="GET")

    assert (away.status, alive.status, back.status) == (503, 200, 200)
    [told] = json.loads(away.body)["not_ready"]
    assert told["what"] == "store"
    assert "holdfast doctor" in told["do"]
    assert "a test says so" not in away.body.decode()
    assert "a test says so" in caplog.text
    assert found.all("holdfast_store_up") == found.all("holdfast_ready") == 0
    assert "holdfast_claims_total" in found.families
    assert "holdfast_queue_jobs" not in found.families


def test_a_store_that_breaks_says_why_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
            raise RuntimeError("postgresql://ana:canary@db")

        async def census(self, limit: int) -> Census:
            raise RuntimeError("postgresql://ana:canary@db")

    with threaded_server(store=Broken(SystemClock(), SystemIds())) as server:
        ready = server.send("/readyz", method="GET")
        found = scrape(server)

    assert ready.status == 503
    assert "canary" not in ready.body.decode() + found.text
    assert "canary" in caplog.text
    assert found.all("holdfast_store_up") == 0


def test_a_store_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryStore):
        async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
            await asyncio.Event().wait()
            return []

    monkeypatch.setattr(readiness, "CHECK_SECONDS", 0.05)
    with threaded_server(store=Hanging(SystemClock(), SystemIds())) as server:
        assert server.send("/readyz", method="GET").status == 503


def test_a_file_that_was_moved_away_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    path = tmp_path / "jobs.db"
    store = asyncio.run(SqliteStore.open(path, ids=SystemIds()))
    with threaded_server(store=store) as server:
        before = server.send("/readyz", method="GET")
        path.rename(tmp_path / "elsewhere.db")
        after = server.send("/readyz", method="GET")

    assert (before.status, after.status) == (200, 503)


def test_a_server_whose_keys_are_all_gone_or_that_stops_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)

    def obstacles(server: ThreadedServer) -> list[str]:
        answer = server.send("/readyz", method="GET")
        assert answer.status == 503
        return [one["what"] for one in json.loads(answer.body)["not_ready"]]

    async def stop(server: ThreadedServer) -> None:
        server.served.app.context.stopping.set()

    with threaded_server(ServerSettings(keys=True)) as server:
        assert obstacles(server) == ["keys"]
        server.do(stop(server))
        assert obstacles(server) == ["server"]


def test_readiness_is_looked_at_once_a_second_however_many_ask() -> None:
    class Watched(MemoryStore):
        looks = 0

        async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
            self.looks += 1
            return [None]

    store = Watched(SystemClock(), SystemIds())

    async def ask(server: ThreadedServer) -> None:
        clock = ManualClock()
        context = server.served.app.context
        context.clock = clock
        ready = readiness.Readiness(context)
        await asyncio.gather(*(ready.obstacles() for _ in range(50)))
        assert store.looks == 1
        clock.advance(1.5)
        await ready.obstacles()
        assert store.looks == 2

    with threaded_server(store=store) as server:
        server.do(ask(server))
