"""Errors over the wire: one table, the same class at both ends, and nothing of the inside."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core import errors
from holdfast.core.access import Key, Scope
from holdfast.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Exhausted,
    Fenced,
    HoldfastError,
    Invalid,
    NotFound,
    Unavailable,
)
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Decision, EventPage, JobPage, JobRequest, Registry, Work
from holdfast.registry.local import LocalRegistry
from holdfast.server import calls
from holdfast.server.context import ServerSettings
from holdfast.server.rest.problems import problem
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres.errors import ServerDown
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.wire.errors import (
    INTERNAL_ERROR,
    STORE_CORRUPT,
    STORE_UNAVAILABLE,
    TABLE,
    connect_error,
    error_detail,
    error_from_connect,
)
from tests.server.raw_http_client import (
    EVENTS,
    JOBS,
    LEAK,
    REGISTRY,
    RawResponse,
    ThreadedServer,
    threaded_server,
)
from tests.server.running_server import serving

OURS = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, HoldfastError) and one is not HoldfastError
]
SECRET = "postgresql://u:secret@db.internal/jobs"
ASKED = {"requests": [{"spec": {}}], "actor": "user:x"}


# The table.


def test_every_error_of_ours_has_one_row() -> None:
    assert sorted(row.error.__name__ for row in TABLE) == sorted(one.__name__ for one in OURS)
    assert len({row.code for row in TABLE}) == len(TABLE), "a code alone tells which it was"
    for row in TABLE:
        assert Code.INTERNAL not in (row.code, row.job_v1)
        assert row.error.advice


def test_an_error_that_a_store_makes_more_exact_is_told_as_what_it_is() -> None:
    """A database that was stopped is unavailable, whatever its adapter calls that."""
    told = connect_error(ServerDown("The connection to PostgreSQL at db.internal was lost."))

    assert told.code == Code.UNAVAILABLE
    assert told.message.startswith("The PostgreSQL database behind this server is not available; ")
    assert "db.internal" not in told.message
    assert type(error_from_connect(told)) is Unavailable
    assert problem(ServerDown("It was lost.")).detail == told.message
    assert problem(ServerDown("It was lost.")).type == "urn:holdfast:Unavailable"


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("job_v1", [False, True])
def test_an_error_is_the_same_at_the_other_end(kind: type[HoldfastError], job_v1: bool) -> None:
    said = kind("The job is running.", job_id="job-1", version=7)

    got = error_from_connect(connect_error(said, job_v1=job_v1))

    assert type(got) is kind
    assert (got.job_id, got.version) == ("job-1", 7)
    assert got.message == (
        STORE_UNAVAILABLE if kind is Unavailable else STORE_CORRUPT if kind is Corrupt else said.message
    )


@pytest.mark.parametrize("applied", ["no", "unknown"])
def test_whether_it_was_done_is_told(applied: Literal["no", "unknown"]) -> None:
    got = error_from_connect(connect_error(Unavailable(SECRET, applied=applied)))
    assert isinstance(got, Unavailable)
    assert got.applied == applied


def test_what_has_no_detail_is_judged_by_its_code() -> None:
    for code, kind in (
        (Code.UNAUTHENTICATED, Denied),
        (Code.UNIMPLEMENTED, Invalid),
        (Code.NOT_FOUND, NotFound),
        (Code.FAILED_PRECONDITION, Conflict),
        (Code.DEADLINE_EXCEEDED, Unavailable),
        (Code.INTERNAL, Unavailable),
        (Code.UNKNOWN, Unavailable),
    ):
        got = error_from_connect(ConnectError(code, "words"))
        assert type(got) is kind
        assert not isinstance(got, Unavailable) or got.applied == "unknown"


def test_words_and_ids_of_errors_are_short() -> None:
    told = error_detail(NotFound("x" * 100_000, job_id="y" * 100_000))
    assert len(told.message) <= 1_000
    assert len(told.job_id) <= 128


# The same error, here and there.

Clocked: TypeAlias = Callable[[Registry, ManualClock], Awaitable[object]]


async def _invalid(registry: Registry, clock: ManualClock) -> object:
    return await registry.enqueue(JobRequest(spec=Spec(priority=10)), actor="user:x")


async def _not_found(registry: Registry, clock: ManualClock) -> object:
    return await registry.cancel("nobody", actor="user:x")


async def _conflict(registry: Registry, clock: ManualClock) -> object:
    await registry.enqueue(JobRequest(spec=Spec(), job_id="one"), actor="user:x")
    await registry.acquire("one", owner="w")
    return await registry.acquire("one", owner="w2")


async def _illegal(registry: Registry, clock: ManualClock) -> object:
    await registry.enqueue(JobRequest(spec=Spec(), job_id="one"), actor="user:x")
    await registry.complete(await registry.acquire("one", owner="w"), Success())
    return await registry.cancel("one", actor="user:x")


async def _fenced(registry: Registry, clock: ManualClock) -> object:
    await registry.enqueue(JobRequest(spec=Spec(), job_id="one"), actor="user:x")
    old = await registry.acquire("one", owner="w")
    clock.advance(61)
    await registry.acquire("one", owner="w2")
    return await registry.heartbeat(old)


async def _fenced_at_the_end(registry: Registry, clock: ManualClock) -> object:
    await registry.enqueue(JobRequest(spec=Spec(), job_id="one"), actor="user:x")
    old = await registry.acquire("one", owner="w")
    clock.advance(61)
    await registry.acquire("one", owner="w2")
    return await registry.complete(old, Success())


async def _exhausted(registry: Registry, clock: ManualClock) -> object:
    for _ in range(2):
        await registry.create_key(name="ana", scopes=[Scope.WORK], actor="user:x")
    return await registry.create_key(name="ana", scopes=[Scope.WORK], actor="user:x")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (_invalid, Invalid),
        (_not_found, NotFound),
        (_conflict, Conflict),
        (_illegal, Conflict),
        (_fenced, Fenced),
        (_fenced_at_the_end, Fenced),
        (_exhausted, Exhausted),
    ],
)
def test_a_remote_registry_raises_what_a_local_one_does(cause: Clocked, kind: type[HoldfastError]) -> None:
    here, there = (
        asyncio.run(_caught(cause, remote=False)),
        asyncio.run(_caught(cause, remote=True)),
    )

    assert type(here) is type(there) is kind
    assert (here.job_id, here.version) == (there.job_id, there.version)


async def _caught(cause: Clocked, *, remote: bool) -> HoldfastError:
    clock, ids = ManualClock(), CountingIds()
    local = LocalRegistry(MemoryStore(clock, ids), ids)
    try:
        async with serving(local) as served:
            far = served.remote()
            try:
                await cause(far if remote else local, clock)
            except HoldfastError as error:
                return error
            finally:
                await far.close()
    finally:
        await local.close()
    raise AssertionError("nothing was raised")


async def test_who_has_no_right_is_denied() -> None:
    ids = SystemIds()
    local = LocalRegistry(MemoryStore(SystemClock(), ids), ids)
    _, text = await local.create_key(name="w", scopes=[Scope.WORK], actor="user:x")
    async with serving(local, ServerSettings(keys=True)) as served:
        for key, words in ((text, "submit"), (None, "key"), (text + "x", "key")):
            remote = served.remote(key)
            with pytest.raises(Denied, match=words):
                await remote.enqueue(JobRequest(spec=Spec()), actor="user:x")
            await remote.close()
    await local.close()


# A store that breaks.


class Breaking(MemoryStore):
    """A store in memory that fails as it is told."""

    error: Exception | None = None

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        self._fail()
        return await super().transact(works)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        self._fail()
        return await super().get(job_ids)

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        self._fail()
        return await super().events(after=after, limit=limit)

    async def secret(self) -> bytes:
        self._fail()
        return await super().secret()

    async def list_keys(self) -> list[Key]:
        self._fail()
        return await super().list_keys()


def _every_way(server: ThreadedServer) -> list[RawResponse]:
    """A call of every shape, in both protocols."""
    token = {"taskToken": "x" * 40}
    return [
        server.call(JOBS + "EnqueueJob", {"jobParams": {"command": "true"}}),
        server.call(JOBS + "GetJob", {"jobId": "9b2f7a4e-3c1d-4f6a-8e5b-7d0c9a1b2e3f"}),
        server.stream(JOBS + "DequeueJob", [{"queue": "q"}]),
        server.stream(EVENTS + "PublishJobEvents", [token]),
        server.call(REGISTRY + "Enqueue", ASKED),
        server.call(REGISTRY + "Claim", {"queues": ["q"], "owner": "w", "waitSeconds": 5}),
        server.call(REGISTRY + "Heartbeat", token),
        server.stream(REGISTRY + "Watch", [{}]),
    ]


FAULTS = {("internal", INTERNAL_ERROR, ""), ("unavailable", STORE_UNAVAILABLE, "unknown")}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unavailable(SECRET), {("unavailable", STORE_UNAVAILABLE, "no")}),
        (Unavailable(SECRET, applied="unknown"), {("unavailable", STORE_UNAVAILABLE, "unknown")}),
        (Corrupt(SECRET), {("data_loss", STORE_CORRUPT, "")}),
        (RuntimeError(SECRET), FAULTS),
        (KeyError(SECRET), FAULTS),
        (OSError(5, SECRET), FAULTS),
    ],
    ids=["unavailable", "unknown", "corrupt", "runtime", "key", "os"],
)
@pytest.mark.parametrize("keys", [False, True])
def test_a_store_that_breaks_is_told_of_in_the_log_alone(
    error: Exception, told: set[tuple[str, str, str]], keys: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Breaking(SystemClock(), SystemIds())
    headers = {"authorization": f"Bearer hf_{'0' * 12}_{'a' * 43}"}
    with threaded_server(ServerSettings(keys=keys), store=store) as server:
        store.error = error
        answers = [server.call(JOBS + "ListJobs", {}, headers)] if keys else _every_way(server)
        store.error = None

        for answer in answers:
            assert (answer.code, answer.message, answer.detail.applied) in told, answer
            assert not LEAK.search(json.dumps(answer.error)), answer
        # Of a fault it tells what broke and where: the words might quote what is in a job.
        fault = keys and not isinstance(error, HoldfastError)
        assert (type(error).__name__ if fault else "secret@db") in caplog.text
        assert "in ASGI" not in caplog.text
        if not keys:
            server.fine()


def test_a_request_that_takes_too_long_may_have_been_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(MemoryStore):
        async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
            await asyncio.sleep(0.5)
            return await super().transact(works)

    monkeypatch.setattr(calls, "REQUEST_SECONDS_MAX", 0.1)
    with threaded_server(store=Slow(SystemClock(), SystemIds())) as server:
        late = server.call(REGISTRY + "Enqueue", ASKED)
        assert (late.code, late.detail.applied) == ("unavailable", "unknown")


@pytest.mark.parametrize("path", [REGISTRY + "ListJobs", "/v1/jobs"])
def test_a_read_that_takes_too_long_has_done_nothing(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    class Slow(MemoryStore):
        async def list_jobs(self, *_: object, **__: object) -> JobPage:
            await asyncio.sleep(60)
            raise AssertionError

    monkeypatch.setattr(calls, "REQUEST_SECONDS_MAX", 0.1)
    with threaded_server(store=Slow(SystemClock(), SystemIds())) as server:
        if path.startswith("/v1"):
            told = json.loads(server.send(path, method="GET").body)
            assert (told["status"], told["applied"]) == (503, "no")
        else:
            late = server.call(path, {})
            assert (late.code, late.detail.applied) == ("unavailable", "no")
