"""REST and Connect are one service: the same verbs, and the same response to every caller (I31, I32)."""

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from holdfast.core.access import Scope
from holdfast.core.documents import document
from holdfast.ports import JobFilter
from holdfast.server.context import ServerSettings
from holdfast.server.rest import facade, routes
from holdfast.server.rest.streams import STREAMS
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryService
from holdfast.wire.generated.job.v1.job_connect import JobEventsService, JobService
from tests.server.keyed_server import (
    KNOWN,
    QUEUE,
    REFUSED,
    REGION,
    STRANGER,
    KeyedServer,
    canary,
    seen_in,
)
from tests.server.raw_http_client import RawResponse, ThreadedServer, threaded_server
from tests.server.rest.rest_calls import KEYS, ROUTE_CALLS, SPEC, KeyedRestServer, RouteCall
from tests.server.rest.rest_client import RestClient, problem, result_of
from tests.server.running_server import outputs_in
from tests.server.test_access import readable, rows

KEY = re.compile("hf_[0-9a-f]{12}_")
JOB_V1 = {
    "EnqueueJob": "POST /v1/jobs",
    "DequeueJob": "POST /v1/grants",
    "UpdateJob": "POST /v1/grants/heartbeat",
    "CompleteJob": "POST /v1/grants/complete",
    "ListJobs": "GET /v1/jobs",
    "GetJob": "GET /v1/jobs/{job_id}",
    "CancelJob": "POST /v1/jobs/{job_id}/cancel",
    "StreamJobEvents": "GET /v1/jobs/{job_id}/stream",
    "PublishJobEvents": "POST /v1/grants/publish",
}
FACADE = {
    "acquire_job": "Acquire",
    "heartbeat": "Heartbeat",
    "complete_job": "Complete",
    "release_job": "Release",
    "job_status": "Status",
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedRestServer]:
    clock = ManualClock()
    opening = outputs_in(tmp_path_factory.mktemp("outputs"))
    with threaded_server(KEYS, store=MemoryStore(clock, SystemIds()), opening=opening) as server:
        keyed = KeyedServer(server.registry, clock, server.served)
        server.do(keyed.make_keys())
        made = server.registry.create_key(name=STRANGER, scopes=(Scope.WORK,), actor="user:root")
        _, keyed.keys[STRANGER] = server.do(made)
        yield KeyedRestServer(server, keyed)
        assert server.do(server.registry.verify()).equal


def _verbs(service: Any) -> set[str]:  # noqa: ANN401
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", one.name).lower() for one in service.desc().methods}


def test_every_method_of_connect_has_a_path_and_every_path_a_method() -> None:
    told = {f"{one.method} {one.path}" for one in routes.ROUTES}
    told |= {f"GET {path}" for path in STREAMS}

    assert {one.verb for one in routes.ROUTES} | {"watch"} == _verbs(RegistryService)
    assert set(JOB_V1) == {
        one.name for service in (JobService, JobEventsService) for one in service.desc().methods
    }
    assert set(JOB_V1.values()) <= told
    assert {one.verb for one in facade.ROUTES} == set(FACADE)
    assert {f"RegistryService.{name}" for name in FACADE.values()} <= set(rows())


def test_every_path_is_called_here_and_described() -> None:
    told = {f"{one.method} {one.path}" for one in routes.ROUTES}
    told |= {f"GET {path}" for path in STREAMS}
    told -= {f"GET /v1/jobs/{{job_id}}/{part}" for part in DATA_ALONE}

    assert {f"{way.method} {way.route}" for way in ROUTE_CALLS} == told
    assert {f"RegistryService.{way.row}" for way in ROUTE_CALLS} == {
        name for name in rows() if name.startswith("RegistryService.")
    }


DATA_ALONE = {"result": "result"}
"""What is nothing but data of a job, and the canary in it."""


@pytest.mark.parametrize(("part", "secret"), DATA_ALONE.items())
def test_data_alone_is_refused_to_those_who_may_not_read_it(
    house: KeyedRestServer, part: str, secret: str
) -> None:
    """I31: in place of an empty response, which would say that there is none."""
    others = dict.fromkeys(KNOWN, 404) | {"observe": 403, "data": 200, "admin": 200}

    def asked(caller: str, owner: str) -> int:
        subject = house.subject(owner, "ended", caller)
        answer = house.caller(caller).get(f"/v1/jobs/{subject.job_id}/{part}")
        house.free(subject)
        assert seen_in(answer.body) == ({secret} if answer.status == 200 else set()), caller
        return answer.status

    assert {caller: asked(caller, STRANGER) for caller in KNOWN} == others
    assert asked("submit", "submit") == 200
    assert {asked(caller, STRANGER) for caller in REFUSED} == {401}


@pytest.mark.parametrize("way", ROUTE_CALLS, ids=lambda way: f"{way.method} {way.route} {way.row}")
def test_every_caller_gets_over_rest_what_the_table_says(
    house: KeyedRestServer, way: RouteCall, caplog: pytest.LogCaptureFixture
) -> None:
    """I31 and I32."""
    caplog.set_level(logging.DEBUG)
    name = f"RegistryService.{way.row}"
    states = (way.state, "ended") if way.state == "running" else (way.state,)

    def asked(caller: str, owner: str) -> tuple[str, set[str]]:
        first, seen = "", set[str]()
        for state in states if caller in KNOWN else states[:1]:
            subject = house.subject(owner, state, caller)
            outcome, raw = way.ask(house.caller(caller), subject, state)
            house.free(subject)
            first = first or outcome
            seen |= seen_in(raw)
        return first, seen

    for caller in KNOWN:
        own, others = rows()[name][caller]
        assert asked(caller, STRANGER) == (others, readable(name, caller, own=False)), caller
        assert asked(caller, caller) == (own, readable(name, caller, own=True)), caller
    for caller in REFUSED:
        assert asked(caller, STRANGER) == ("unauthenticated", set()), caller
    assert seen_in(caplog.text.encode()) == set()
    assert KEY.search(caplog.text) is None


FRONT = """
                submit work observe data admin keys elsewhere abroad
acquire-job       403   200    403   403   403   403   404      404
heartbeat         403   200    403   403   403   403   404      404
complete-job      403   200    403   403   403   403   404      404
release-job       403   200    403   403   403   403   404      404
job-status        200   200    200   200   200   404   404      404
"""
"""`/registry` by caller, about a job that they asked for, or hold."""


def _front(caller: RestClient, path: str, job_id: str, token: int) -> RawResponse:
    if path == "job-status":
        return caller.get(f"/registry/job-status/{job_id}")
    asked: dict[str, Any] = {"job_id": job_id, "worker_id": "w-1"}
    if path == "complete-job":
        asked["result"] = canary("result")
    if path != "acquire-job":
        asked["fencing_token"] = token
    return caller.post(f"/registry/{path}", asked)


@pytest.mark.parametrize("path", [line.split()[0] for line in FRONT.split("\n")[2:-1]])
def test_every_caller_gets_from_the_registry_what_the_table_says(
    house: KeyedRestServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I31 and I32: and it tells nobody anything of what is in a job."""
    caplog.set_level(logging.DEBUG)
    [cells] = [line.split()[1:] for line in FRONT.split("\n") if line.startswith(path)]
    expected = dict(zip(KNOWN, map(int, cells), strict=True)) | dict.fromkeys(REFUSED, 401)

    def asked(caller: str, owner: str) -> int:
        subject, token = house.subject(owner, "queued"), 0
        if path not in ("acquire-job", "job-status"):
            holder = house.caller("work" if owner == "work" else STRANGER)
            token = result_of(_front(holder, "acquire-job", subject.job_id, 0))["fencing_token"]
        answer = _front(house.caller(caller), path, subject.job_id, token)
        house.free(subject)
        assert seen_in(answer.body) == set(), caller
        if answer.status != 200:
            problem(answer, answer.status)
        return answer.status

    found = {name: asked(name, name) for name in (*KNOWN, *REFUSED)}

    assert found == expected
    assert asked("submit", STRANGER) == (404 if path == "job-status" else 403)
    assert asked("work", STRANGER) == (200 if path in ("acquire-job", "job-status") else 409)
    assert seen_in(caplog.text.encode()) == set()


def test_who_may_see_what_operators_see(house: KeyedRestServer) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/health"):
        for caller in (*KNOWN, *REFUSED):
            assert house.caller(caller).get(path).status == 200, (path, caller)
    counts = rows()["RegistryService.Counts of all"]
    for caller in KNOWN:
        allowed = counts[caller][0] == "ok"
        answer = house.caller(caller).get("/metrics")
        assert answer.status == (200 if allowed else 403), caller
        assert seen_in(answer.body) == set()
    for caller in REFUSED:
        answer = house.caller(caller).get("/metrics")
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_whom_nobody_knows_is_told_how_to_say_who_they_are(house: KeyedRestServer) -> None:
    for caller in REFUSED:
        for path in ("/v1/now", "/v1/events/stream", "/registry/job-status/x"):
            answer = house.caller(caller).get(path)
            told = problem(answer, 401, "Authorization: Bearer")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert told["applied"] == "no"


def test_nothing_is_read_of_whom_nobody_knows(house: KeyedRestServer) -> None:
    """Who is asked for comes first: neither a bad body nor an unknown job is spoken about."""
    nobody = house.caller("nobody")
    for path in ("/v1/jobs", "/v1/grants/complete", "/registry/acquire-job"):
        problem(nobody.ask("POST", path, b"{", {"content-type": "text/plain"}), 401)


@pytest.fixture(scope="module")
def plain() -> Iterator[ThreadedServer]:
    store = MemoryStore(ManualClock(datetime(2030, 1, 1, tzinfo=UTC)), SystemIds())
    with threaded_server(ServerSettings(poll_seconds=0.0), store=store) as server:
        yield server


async def test_what_is_read_over_rest_is_what_is_read_over_connect(plain: ThreadedServer) -> None:
    """Each path says its own verb, with all that the verb says."""
    rest = RestClient(plain)
    asked = {"spec": SPEC | {"lock": "disk", "payload": {"n": 1}}, "job_id": "job-1"}
    assert rest.post("/v1/jobs", asked).status == 201
    grant = result_of(rest.post("/v1/jobs/job-1/acquire", {"owner": "w-1"}))
    progress = {"done": 1, "total": 3}
    rest.post("/v1/grants/heartbeat", {"task_token": grant["task_token"], "progress": progress})
    rest.post("/v1/keys", {"name": "ana", "scopes": ["work"]})

    rest.post("/v1/workers", {"name": "w-1", "instance": "1", "queues": [QUEUE], "kinds": ["report:2"]})

    remote = plain.served.remote()
    page = await remote.list_jobs(JobFilter(queue=QUEUE))
    feed, log = await remote.events(), await remote.logs("job-1")
    found: dict[str, Any] = {
        "/v1/jobs/job-1": await remote.status("job-1"),
        f"/v1/jobs?queue={QUEUE}": {"jobs": page.jobs, "next": page.next},
        f"/v1/counts?queue={QUEUE}": {"counts": await remote.counts(QUEUE)},
        "/v1/jobs/job-1/why": {"text": await remote.why("job-1")},
        "/v1/jobs/job-1/history": {"events": await remote.history("job-1"), "next": None},
        "/v1/jobs/job-1/logs": {"events": log.events, "cursor": log.cursor},
        "/v1/events": {"events": feed.events, "cursor": feed.cursor},
        "/v1/events/tail": {"cursor": await remote.tail()},
        "/v1/locks/disk": await remote.locks("disk"),
        "/v1/workers": {"workers": await remote.workers()},
        f"/v1/workers?queue={QUEUE}": {"workers": await remote.workers(QUEUE)},
        "/v1/queues": {"queues": await remote.queues()},
        "/v1/doctor": {"findings": await remote.doctor()},
        "/v1/now": {"now": await remote.now()},
        "/v1/keys": {"keys": await remote.list_keys()},
    }
    await remote.close()
    expected = found
    for path, value in expected.items():
        wanted = {k: document(v) for k, v in value.items()} if isinstance(value, dict) else value
        assert result_of(rest.get(path)) == msgspec.json.decode(msgspec.json.encode(document(wanted))), path
    assert grant["job"]["spec"]["region"] == REGION
    assert result_of(rest.post("/v1/verify"))["mismatches"] == []
