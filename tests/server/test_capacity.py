"""Capacity: each key has a bound on its calls under way, and none waits behind the heavy reads of another."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from msgspec import Raw

from holdfast.core.access import Principal, Scope
from holdfast.core.errors import Exhausted
from holdfast.core.spec import Spec
from holdfast.ports import Decision, JobFilter, JobPage, JobRequest, Work
from holdfast.registry.local import LocalRegistry
from holdfast.server import limits
from holdfast.server.calls import current_principal
from holdfast.server.capacity import Capacity, current_exchange
from holdfast.server.context import ServerSettings
from holdfast.server.fair_limiter import Bounds, FairLimiter
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.verbs import JOBS_LIGHT_MAX, VERBS, Load
from tests.server.running_server import RunningServer, serving
from tests.server.server_process import until

RUNNING = limits.HEAVY_READS_PER_KEY_MAX


class SlowLists(MemoryStore):
    """A store whose listings take as long as the test wants."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), SystemIds())
        self.go = asyncio.Event()
        self.under_way = 0
        self.works = 0

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        self.works += len(works)
        return await super().transact(works)

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        self.under_way += 1
        await self.go.wait()
        return await super().list_jobs(which, after=after, limit=limit, newest=newest)


class SlowServer:
    """A server with keys over such a store."""

    def __init__(self, store: SlowLists, registry: LocalRegistry, served: RunningServer) -> None:
        self.store = store
        self.registry = registry
        self.served = served
        self.heavy: FairLimiter = dict(served.app.context.capacity.limiters())[Load.HEAVY]

    async def client(self, name: str, *scopes: Scope) -> httpx.AsyncClient:
        _, text = await self.registry.create_key(name=name, scopes=scopes, actor="user:root")
        self.served.app.context.keyring.invalidate()
        return httpx.AsyncClient(
            base_url=self.served.url,
            headers={"authorization": f"Bearer {text}"},
            timeout=60,
            limits=httpx.Limits(max_connections=None),
        )


@asynccontextmanager
async def open_slow_server() -> AsyncIterator[SlowServer]:
    store = SlowLists()
    registry = LocalRegistry(store, SystemIds())
    async with serving(registry, ServerSettings(keys=True)) as served:
        yield SlowServer(store, registry, served)
        store.go.set()
    await registry.close()


async def waiting(room: FairLimiter, count: int) -> None:
    await until(lambda: room.waiting() == count)


async def test_an_owner_does_not_wait_behind_the_heavy_reads_of_another() -> None:
    async with open_slow_server() as here:
        lister = await here.client("lister", Scope.OBSERVE)
        worker = await here.client("worker", Scope.WORK, Scope.SUBMIT, Scope.OBSERVE)
        lists = [asyncio.create_task(lister.get("/v1/jobs")) for _ in range(20)]
        await waiting(here.heavy, 20 - RUNNING)

        await worker.post("/v1/jobs", json={"spec": {}})
        [grant] = (await worker.post("/v1/grants", json={"queues": ["default"], "owner": "w"})).json()[
            "grants"
        ]
        token = {"task_token": grant["task_token"]}
        beat = await worker.post("/v1/grants/heartbeat", json=token)
        done = await worker.post("/v1/grants/complete", json={**token, "success": {}})

        assert (beat.status_code, done.status_code) == (200, 200)
        assert here.store.under_way == RUNNING, "none of the listings has gone on meanwhile"
        other = asyncio.create_task(worker.get("/v1/jobs"))
        await until(lambda: here.store.under_way > RUNNING)
        assert here.heavy.waiting() == 20 - RUNNING, "another key's listing goes before those that wait"
        here.store.go.set()
        answers = await asyncio.gather(other, *lists)
        assert {one.status_code for one in answers} == {200}
        assert (here.heavy.slots_in_use(), here.heavy.bytes_in_use()) == (0, 0)
        await lister.aclose()
        await worker.aclose()


async def test_a_key_with_too_many_heavy_reads_is_told_when_to_come_again() -> None:
    async with open_slow_server() as here:
        lister = await here.client("lister", Scope.OBSERVE)
        here.heavy.bounds = Bounds(slots=4, slots_per_key=1, waiting=2, waiting_per_key=1)
        lists = [asyncio.create_task(lister.get("/v1/jobs")) for _ in range(2)]
        await waiting(here.heavy, 1)

        rest = await lister.get("/v1/jobs")
        connect = await lister.post("/holdfast.v1.RegistryService/ListJobs", json={})
        old = await lister.post("/job.v1.JobService/ListJobs", json={})
        here.store.go.set()
        await asyncio.gather(*lists)
        counted = (await lister.get("/metrics")).text

        assert [rest.status_code, connect.status_code, old.status_code] == [429, 429, 429]
        assert {one.headers["retry-after"] for one in (rest, connect, old)} == {"1"}
        assert "heavy reads of this key" in rest.json()["detail"]
        assert connect.json()["code"] == old.json()["code"] == "resource_exhausted"
        assert 'holdfast_calls_refused_total{load="heavy"} 3' in counted
        assert 'holdfast_calls_waiting{load="heavy"} 0' in counted
        await lister.aclose()


async def test_a_heavy_read_whose_client_has_left_waits_no_more() -> None:
    async with open_slow_server() as here:
        lister = await here.client("lister", Scope.OBSERVE)
        lists = [asyncio.create_task(lister.get("/v1/jobs")) for _ in range(20)]
        await waiting(here.heavy, 20 - RUNNING)

        for one in lists:
            one.cancel()
        await lister.aclose()

        await until(lambda: not (here.heavy.waiting() or here.heavy.slots_in_use()))


async def unread(
    here: SlowServer, client: httpx.AsyncClient, jobs: int, count: int, *, calls: int = 1
) -> list[socket.socket]:
    """So many connections that ask for large jobs, in some calls each, and do not read the answers."""
    spec = Spec(payload=Raw(b'"%b"' % (b"x" * 250_000)))
    made = await here.registry.enqueue_many([JobRequest(spec=spec)] * jobs, actor="user:root")
    body = json.dumps({"job_ids": [job.job_id for job in made]}).encode()
    head = f"authorization: {client.headers['authorization']}\r\ncontent-type: application/json"
    asked = f"POST /v1/jobs/status HTTP/1.1\r\nhost: x\r\n{head}\r\ncontent-length: {len(body)}\r\n\r\n"
    place = urlsplit(here.served.url)
    silent = []
    for _ in range(count):
        plug = socket.socket()
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plug.connect((place.hostname, place.port))
        plug.sendall((asked.encode() + body) * calls)
        silent.append(plug)
    return silent


async def test_an_answer_that_nobody_reads_is_counted_until_its_client_is_gone() -> None:
    async with open_slow_server() as here:
        here.store.go.set()
        lister = await here.client("lister", Scope.OBSERVE, Scope.DATA)
        silent = await unread(here, lister, 30, 4)

        await until(lambda: here.heavy.waiting() == 2 and not here.heavy.slots_in_use())
        assert here.heavy.bytes_in_use() <= limits.RESPONSES_BYTES_PER_KEY_MAX
        for plug in silent:
            plug.close()
        await until(lambda: not (here.heavy.bytes_in_use() or here.heavy.slots_in_use()))
        await lister.aclose()


async def test_light_answers_that_nobody_reads_are_counted_for_their_own_key_alone() -> None:
    async with open_slow_server() as here:
        here.store.go.set()
        light = dict(here.served.app.context.capacity.limiters())[Load.LIGHT]
        reader = await here.client("reader", Scope.OBSERVE, Scope.DATA)
        other = await here.client("other", Scope.OBSERVE, Scope.DATA, Scope.SUBMIT)
        silent = await unread(here, reader, JOBS_LIGHT_MAX, 40, calls=10)

        await until(lambda: light.waiting() > 20 and not light.slots_in_use())
        assert 0 < light.bytes_in_use() <= limits.RESPONSES_BYTES_PER_KEY_MAX
        assert here.heavy.bytes_in_use() == 0, "heavy reads of others have all of their room"
        made = await other.post("/v1/jobs", json={"spec": {}})
        found = await other.get(f"/v1/jobs/{made.json()['job_id']}")
        listed = await other.get("/v1/jobs")
        assert [made.status_code, found.status_code, listed.status_code] == [201, 200, 200]
        for plug in silent:
            plug.close()
        await until(lambda: not (light.bytes_in_use() or light.slots_in_use() or light.waiting()))
        await reader.aclose()
        await other.aclose()


@pytest.mark.parametrize("load", [Load.OWNER, Load.LIGHT, Load.HEAVY, Load.CHORE, Load.WAIT])
async def test_an_answer_is_counted_among_those_of_its_kind_while_it_is_sent(load: Load) -> None:
    capacity = Capacity(SystemClock())
    rooms = dict(capacity.limiters())
    large, held = b"x" * (3 * limits.SEND_BYTES), list[dict[str, int]]()

    async def send(_: dict[str, object]) -> None:
        held.append({of: room.bytes_in_use() for of, room in rooms.items() if room.bytes_in_use()})

    current_principal.set(Principal("root", frozenset(), key_id="k"))
    exchange = capacity.exchange({"headers": []}, asyncio.Queue[dict[str, Any]]().get, send)
    current_exchange.set(exchange)
    async with capacity.slot(load):
        pass
    for _ in range(2):
        await exchange.send({"type": "http.response.body", "body": large, "more_body": True})
    assert not any(room.bytes_in_use() for room in rooms.values()), "of a stream, what is sent is gone"
    exchange.close()

    kind = Load.LIGHT if load is Load.WAIT else load
    assert held == [{kind: len(large)}] * 6
    assert not any(room.bytes_in_use() or room.slots_in_use() for room in rooms.values())


LARGE = "x" * 250_000


async def taken(client: httpx.AsyncClient) -> str:
    """The task token of a new job that is large."""
    await client.post("/v1/jobs", json={"spec": {"payload": LARGE}, "request_id": "one"})
    asked = {"queues": ["default"], "owner": "w"}
    [grant] = (await client.post("/v1/grants", json=asked)).json()["grants"]
    token: str = grant["task_token"]
    await client.post("/v1/grants/heartbeat", json={"task_token": token, "checkpoint": LARGE})
    return token


async def test_completions_that_say_the_same_are_decided_once_and_answered_within_a_limit() -> None:
    async with open_slow_server() as here:
        worker = await here.client("worker", Scope.WORK, Scope.SUBMIT)
        done = {"task_token": await taken(worker), "op_id": "done", "success": {"result": 1}}
        before = here.store.works

        asked = {"completions": [done] * 1_000}
        answer = await worker.post("/v1/grants/complete/batch", json=asked)

        assert answer.status_code == 200, answer.text[:300]
        assert len(answer.content) < 3 * limits.CHANGED_BYTES_MAX
        jobs = [one["job"] for one in answer.json()["answers"]]
        assert [job["state"] for job in jobs] == ["succeeded"] * 1_000
        assert (jobs[0]["spec"]["payload"], jobs[0]["checkpoint"]) == (LARGE, LARGE)
        assert (jobs[-1]["spec"]["payload"], jobs[-1]["checkpoint"]) == (None, None)
        assert here.store.works == before + 1
        await worker.aclose()


async def test_of_one_attempt_few_different_endings_are_taken_in_one_call() -> None:
    async with open_slow_server() as here:
        worker = await here.client("worker", Scope.WORK, Scope.SUBMIT)
        token, before = await taken(worker), here.store.works
        ends = [{"task_token": token, "success": {"result": n}} for n in range(100)]

        asked = {"completions": ends}
        answer = await worker.post("/v1/grants/complete/batch", json=asked)

        answers = answer.json()["answers"]
        assert answers[0]["job"]["result"] == 0
        titles = [one["error"]["title"] for one in answers[1:]]
        fenced = limits.COMPLETIONS_PER_TOKEN_MAX - 1
        assert len(set(titles[:fenced])) == len(set(titles[fenced:])) == 1
        assert "At most" in answers[-1]["error"]["detail"]
        assert here.store.works <= before + limits.COMPLETIONS_PER_TOKEN_MAX
        await worker.aclose()


async def test_jobs_asked_for_again_are_answered_within_a_limit() -> None:
    async with open_slow_server() as here:
        worker = await here.client("worker", Scope.WORK, Scope.SUBMIT)
        small = {"spec": {"payload": 1}, "request_id": "two"}
        await worker.post("/v1/jobs", json=small)
        asked = {"queues": ["default"], "owner": "w"}
        [grant] = (await worker.post("/v1/grants", json=asked)).json()["grants"]
        done = {"task_token": grant["task_token"], "success": {"result": LARGE}}
        await worker.post("/v1/grants/complete", json=done)

        again = await worker.post("/v1/jobs/batch", json={"requests": [small] * 200})

        assert again.status_code == 201, again.text[:300]
        assert len(again.content) < 3 * limits.CHANGED_BYTES_MAX
        jobs = again.json()["jobs"]
        assert [job["state"] for job in jobs] == ["succeeded"] * 200
        assert (jobs[0]["result"], jobs[-1]["result"]) == (LARGE, None)
        await worker.aclose()


async def test_the_keys_take_turns_and_one_that_leaves_gives_its_place_back() -> None:
    room, told = FairLimiter("calls", Bounds(slots=1)), list[str]()

    async def call(key: str) -> None:
        await room.acquire(key)
        told.append(key)
        room.release(key)

    await room.acquire("first")
    calls = [asyncio.create_task(call(key)) for key in ("a", "a", "a", "b", "c")]
    leaving = asyncio.create_task(call("d"))
    await waiting(room, 6)
    leaving.cancel()
    await waiting(room, 5)
    room.release("first")
    await asyncio.gather(*calls)

    assert told == ["a", "b", "c", "a", "a"]
    assert (room.slots_in_use(), room.waiting()) == (0, 0)


async def test_a_call_that_would_wait_too_long_is_refused_and_leaves_nothing() -> None:
    room = FairLimiter("calls", Bounds(slots=1, bytes=10, seconds=0.0))
    await room.acquire("a", 4)

    with pytest.raises(Exhausted, match="too long"):
        await room.acquire("b", 1)

    room.release("a", 4)
    assert (room.slots_in_use(), room.bytes_in_use(), room.waiting(), room.refused) == (0, 0, 0, 1)


async def test_large_bodies_of_a_key_wait_for_each_other() -> None:
    bodies = dict(Capacity(SystemClock()).limiters())["body"]
    size = limits.REQUEST_BYTES_MAX
    for _ in range(limits.BODIES_BYTES_PER_KEY_MAX // size):
        await bodies.acquire("a", size)

    late = asyncio.create_task(bodies.acquire("a", size))
    await waiting(bodies, 1)
    await bodies.acquire("b", size)
    bodies.release("a", size)
    await late


def test_what_reads_much_is_heavy_and_what_owners_do_is_theirs() -> None:
    by_load: dict[Load, set[str]] = {load: set() for load in Load}
    for verb in VERBS:
        by_load[verb.load].add(verb.name)

    assert by_load[Load.OWNER] == {"heartbeat", "publish", "aggregate", "complete", "release"}
    assert {"list_jobs", "history", "logs", "events", "list_outputs"} <= by_load[Load.HEAVY]
    assert by_load[Load.CHORE] == {"resume", "prune", "verify", "doctor"}
    assert by_load[Load.WAIT] == {"claim", "changes", "validate", "watch"}
