"""/metrics, /healthz and /readyz: true numbers, bounded labels, for callers who may read them."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, HoldfastError
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.registry.counters import KINDS_MAX
from holdfast.registry.local import LocalRegistry
from holdfast.registry.metrics import QUEUES_MAX
from holdfast.server import keyring
from holdfast.server.context import ServerSettings
from holdfast.server.event_streams import EventStreams
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from tests.server.metrics_page import begin, enqueue, every_ending, many_jobs, scrape
from tests.server.raw_http_client import REGISTRY, ThreadedServer, threaded_server

OF_KIND = (
    "claims_total",
    "claim_conflicts_total",
    "lease_renewals_total",
    "lease_expiries_total",
    "retries_total",
    "failures_total",
    "dead_letters_total",
    "deadline_hits_total",
    "job_latency_seconds_bucket",
    "job_seconds_bucket",
    "job_wait_seconds_bucket",
)


@pytest.fixture(scope="module")
def lived() -> Iterator[ThreadedServer]:
    clock = ManualClock()
    with threaded_server(store=MemoryStore(clock, CountingIds())) as server:
        server.do(every_ending(server.registry, clock))
        yield server


def test_every_metric_of_the_requirements_is_there_per_kind(lived: ThreadedServer) -> None:
    found = scrape(lived)

    for name in OF_KIND:
        assert {"good", "bad", "dead"} <= found.values(f"holdfast_{name}", "kind"), name
    for name in ("queue_jobs", "events_total", "workers", "leases_suspected", "requests_total"):
        assert f"holdfast_{name}" in found.families


def test_the_numbers_are_what_happened(lived: ThreadedServer) -> None:
    found = scrape(lived)

    def of(name: str) -> dict[str, int]:
        return {kind: n for (kind,), n in found.by(f"holdfast_{name}", "kind").items()}

    assert of("claim_conflicts_total") == {"taken": 1}
    assert of("lease_renewals_total") == {"good": 1}
    assert of("lease_expiries_total") == {"lapsed": 1, "taken": 1}
    assert of("retries_total") == {"again": 1, "lapsed": 1, "taken": 1}
    assert of("dead_letters_total") == {"dead": 1, "late-parked": 1}
    assert of("deadline_hits_total") == {"late": 1, "late-parked": 1}
    badly = ("bad", "dead", "late", "late-parked", "again", "lapsed", "taken")
    assert of("failures_total") == dict.fromkeys(badly, 1)
    verdicts = found.by("holdfast_validations_total", "kind", "verdict")
    assert verdicts == {("judged", "partial_success"): 1}
    assert found.all("holdfast_events_total", type="job_stale_write_rejected") == 1
    assert found.all("holdfast_refusals_total", error="fenced") == 1
    assert found.all("holdfast_workers") == 1
    assert found.all("holdfast_queue_jobs", queue="other-queue", state="queued") == 1
    assert found.all("holdfast_queue_oldest_seconds", queue="other-queue") == 10
    assert found.all("holdfast_job_seconds_sum", kind="good") == 3
    assert found.all("holdfast_job_latency_seconds_bucket", kind="good", le="2.5") == 0
    assert found.all("holdfast_job_latency_seconds_bucket", kind="good", le="5.0") == 1
    assert found.all("holdfast_job_wait_seconds_count", kind="good") == 1


def test_what_is_overdue_shows() -> None:
    clock = ManualClock()
    with threaded_server(store=MemoryStore(clock, CountingIds())) as server:
        server.do(begin(server.registry, "stuck"))
        before = scrape(server).all("holdfast_overdue_seconds")
        clock.advance(90)

        assert (before, scrape(server).all("holdfast_overdue_seconds")) == (0, 30)


def test_scenario_7_of_64_claims_63_are_conflicts() -> None:
    async def claim(server: ThreadedServer) -> int:
        job_id = await enqueue(server.registry, "one")
        remote = server.served.remote()

        async def ask(n: int) -> int:
            try:
                await remote.acquire(job_id, owner=f"w-{n}")
            except Conflict:
                return 0
            return 1

        granted = sum(await asyncio.gather(*(ask(n) for n in range(64))))
        await remote.close()
        return granted

    with threaded_server() as server:
        granted = server.do(claim(server))
        found = scrape(server)

    assert granted == 1
    assert found.all("holdfast_claim_conflicts_total", kind="one") == 63
    assert found.all("holdfast_events_total", type="job_claimed") == 1
    asked = {"method": "holdfast.v1.RegistryService/Acquire", "protocol": "connect"}
    assert found.all("holdfast_requests_total", code="ok", **asked) == 1
    assert found.all("holdfast_requests_total", code="failed_precondition", **asked) == 63
    assert found.all("holdfast_request_seconds_count", **asked) == 64


def test_metrics_equal_the_log_and_the_counts() -> None:
    async def read(registry: LocalRegistry) -> tuple[Counter[str], Counter[tuple[str, str]]]:
        logged: Counter[str] = Counter()
        by_kind: Counter[tuple[str, str]] = Counter()
        cursor = None
        while (page := await registry.events(after=cursor, limit=1000)).events:
            cursor = page.cursor
            for event in page.events:
                logged[event.event_type] += 1
                if event.event_class in (EventClass.TRANSITION, EventClass.CONTROL):
                    job = await registry.status(event.job_id or "")
                    by_kind[job.spec.kind, event.event_type] += 1
        return logged, by_kind

    with threaded_server() as server:
        server.do(many_jobs(server.registry, 300))
        found = scrape(server)
        logged, by_kind = server.do(read(server.registry))
        counts = server.do(server.registry.counts())

    events = {name: n for (name,), n in found.by("holdfast_events_total", "type").items()}
    states = {State(s): n for (s,), n in found.by("holdfast_queue_jobs", "state").items()}
    assert events == dict(logged)
    assert found.by("holdfast_job_events_total", "kind", "type") == by_kind
    assert states == counts
    assert sum(states.values()) == 300
    ended = sum(n for state, n in counts.items() if state not in (State.QUEUED, State.ASSIGNED))
    assert found.all("holdfast_job_latency_seconds_count") == ended
    assert found.all("holdfast_claims_total") == logged["job_claimed"] == ended
    shared = found.all("holdfast_commit_works_sum") / found.all("holdfast_commit_works_count")
    assert shared > 1


def test_labels_are_bounded_and_nothing_is_lost() -> None:
    async def fill(registry: LocalRegistry) -> None:
        requests = [
            JobRequest(spec=Spec(queue=f"queue-{n:04}", kind=f"kind-{n:04}"), job_id=f"secret-{n}")
            for n in range(1000)
        ]
        requests += [JobRequest(spec=Spec(queue="busy", kind="kind-0000")) for _ in range(9)]
        for start in range(0, len(requests), 500):
            await registry.enqueue_many(requests[start : start + 500], actor="user:ana")
        await registry.acquire("secret-7", owner="secret-owner")

    with threaded_server() as server:
        server.do(fill(server.registry))
        found = scrape(server)

    assert len(found.values("holdfast_queue_jobs", "queue")) == QUEUES_MAX + 1
    assert len(found.values("holdfast_queue_oldest_seconds", "queue")) <= QUEUES_MAX + 1
    assert len(found.values("holdfast_claims_total", "kind")) == KINDS_MAX + 1
    assert found.all("holdfast_queue_jobs", queue="busy") == 9
    assert found.all("holdfast_queue_jobs") == 1009
    assert found.all("holdfast_job_events_total", type="job_queued") == 1009
    assert "secret" not in found.text


def test_only_those_who_may_overlook_everything_read_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyring, "UNKNOWN_SECONDS", 0.0)
    numbers = count()
    with threaded_server(ServerSettings(keys=True)) as server:

        def get(key: str | None = None) -> int:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return server.send("/metrics", headers=headers, method="GET").status

        def key(*scopes: Scope, **more: Sequence[str]) -> str:
            name = f"key-{next(numbers)}"
            made = server.registry.create_key(name=name, scopes=scopes, actor="user:root", **more)  # type: ignore[arg-type]
            return str(server.do(made)[1])

        assert get() == get("hf_nonsense") == 401
        assert get(key(Scope.SUBMIT, Scope.WORK)) == 403
        assert get(key(Scope.OBSERVE, queues=["mail"])) == 403
        assert get(key(Scope.OBSERVE, regions=["eu"])) == 403
        assert get(key(Scope.OBSERVE)) == get(key(Scope.ADMIN)) == 200
        for path in ("/health", "/healthz", "/readyz"):
            assert server.send(path, method="GET").status == 200
        assert server.call(REGISTRY + "Counts", {}).code == "unauthenticated"
        found = scrape(server, {"authorization": f"Bearer {key(Scope.OBSERVE)}"})
        assert found.all("holdfast_requests_total", code="unauthenticated") == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_pages_for_operators_only_tell(lived: ThreadedServer, path: str) -> None:
    posted = lived.send(path, b"{}")
    head = lived.raw(f"HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    elsewhere = lived.send(path, headers={"host": "evil.example"}, method="GET")

    assert posted.status == 405
    assert head.endswith(b"\r\n\r\n")
    assert elsewhere.status == (403 if path == "/metrics" else 200)


async def test_the_lag_of_the_feed_is_the_age_of_what_is_being_sent() -> None:
    clock, ids = ManualClock(), CountingIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    ring = keyring.Keyring(registry, clock, required=False)
    readers = EventStreams(registry, ring, clock, asyncio.Event())
    who = await ring.principal(None)
    assert who is not None
    await enqueue(registry, "old")
    clock.advance(40)
    with readers.subscribe(who, None) as stirred:
        slices = readers.follow(who, None, None, stirred)
        assert (await anext(slices)).events
        assert readers.open_counts() == {"feed": 1, "job": 0}
        assert readers.lag_seconds(clock.now()) == 40
        assert not (await anext(slices)).events
        assert readers.lag_seconds(clock.now()) == 0
        await enqueue(registry, "new")
        clock.advance(2)
        assert (await anext(slices)).events
        assert readers.lag_seconds(clock.now()) == 2
        await slices.aclose()
    assert readers.lag_seconds(clock.now()) == 0
    assert readers.open_counts() == {"feed": 0, "job": 0}
    readers.stopping.set()
    await registry.close()


def test_clients_that_wait_are_counted() -> None:
    async def wait(server: ThreadedServer) -> None:
        remote = server.served.remote()
        claim = asyncio.create_task(_waiting(server))
        for _ in range(500):
            if server.served.app.context.claim_waiters.waiting():
                break
            await asyncio.sleep(0.01)
        assert server.served.app.context.claim_waiters.waiting() == 1
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        await remote.close()

    async def _waiting(server: ThreadedServer) -> None:
        async def nothing() -> list[object]:
            return []

        await server.served.app.context.claim_waiters.claim("lane", nothing, 30)  # type: ignore[arg-type]

    with threaded_server() as server:
        server.do(wait(server))


def test_a_refused_commit_is_counted() -> None:
    class Away(MemoryStore):
        async def transact(self, works: object) -> list[list[object]]:  # type: ignore[override]
            raise HoldfastError("gone")

    async def ask(server: ThreadedServer) -> None:
        with pytest.raises(HoldfastError):
            await enqueue(server.registry, "none")

    with threaded_server(store=Away(SystemClock(), SystemIds())) as server:  # type: ignore[arg-type]
        server.do(ask(server))
        found = scrape(server)

    assert found.all("holdfast_commit_failures_total") == 1
