"""The middleware under a real uvicorn, asked by plain HTTP clients."""

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import Corrupt, Exhausted, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.limits import NUMBER_MAX
from holdfast.core.spec import Spec
from holdfast.fencing import HEADER, Fence, Guard, RegistryAuthority
from holdfast.fencing.asgi import (
    READ_METHODS,
    SCOPE_KEY,
    Application,
    FenceMiddleware,
    Message,
    Scope,
)
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres.errors import ServerDown
from tests.fencing.asgi_server import Service, ask, ask_raw, serve_behind, served, shake

GOOD = Fence(resource="account-17", token=7, job_id="job-1", lock="account-17")
HOSTILE = [
    b"\x00",
    b"\xff\xfe\x80",
    "\uff17;resource=\u201cé\u201d;job='j'".encode(),
    b'7;resource="account-17";job="j\xe9"',
    b'7;resource="account-17"\r\nEvil: job="j"',
    b'7;resource="a"' + b";" * 1000,
    b'7;resource="../../etc";job="j"',
    b'7;resource="account-17";job="j"' + b' ;x="y"' * 5000,
    b"7" * 60_000,
    b"7" * 100_000,
    b" " * 100_000 + b"7",
]


def behind(
    guard: Guard | None = None,
    *,
    resource: Callable[[Scope], str] | None = None,
    reading: Collection[str] = READ_METHODS,
    required: bool = True,
) -> Callable[[Application], Application]:
    return lambda app: FenceMiddleware(
        app, guard or Guard(), resource=resource, read_methods=reading, required=required
    )


def with_fence(one: Fence = GOOD) -> list[tuple[str, str]]:
    return list(one.headers.items())


async def test_a_good_fence_passes_and_the_application_sees_it() -> None:
    async with serve_behind(behind()) as (port, service):
        answer = await ask(port, headers=with_fence())

        assert answer.status == 200
        assert answer.body == {"fence": msgspec.to_builtins(GOOD), "body": "hello"}
        assert service.requests[0][SCOPE_KEY] == GOOD


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "post", "Put"])
async def test_every_writing_method_needs_a_fence_however_it_is_spelt(method: str) -> None:
    async with serve_behind(behind()) as (port, service):
        answer = await ask(port, method)

        assert answer.status == 428
        assert answer.body["error"] == "fence_required"
        assert HEADER in answer.body["detail"]
        assert answer.headers["content-type"] == "application/json"
        assert service.requests == []
        assert (await ask(port, method, with_fence())).status == 200


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_reading_passes_with_or_without_a_fence(method: str) -> None:
    async with serve_behind(behind()) as (port, _service):
        for headers in ([], with_fence(), [(HEADER, "nonsense")]):
            answer = await ask(port, method, headers)
            assert (answer.status, answer.body["fence"]) == (200, "absent")


async def test_which_methods_read_can_be_said() -> None:
    async with serve_behind(behind(reading=["PROPFIND"])) as (port, _service):
        assert (await ask(port, "PROPFIND")).status == 200
        assert (await ask(port, "GET")).status == 428


@pytest.mark.parametrize("method", ["LOCK", "MKCOL", "get"])
async def test_a_method_nobody_knows_may_write(method: str) -> None:
    async with serve_behind(behind()) as (port, _service):
        assert (await ask(port, method)).status == 428


async def test_a_fence_that_is_not_required_may_be_absent_but_not_stale() -> None:
    async with serve_behind(behind(required=False)) as (port, _service):
        absent = await ask(port)
        await ask(port, headers=with_fence())
        stale = await ask(port, headers=with_fence(msgspec.structs.replace(GOOD, token=6)))

        assert (absent.status, absent.body["fence"]) == (200, None)
        assert stale.status == 409


async def test_a_stale_token_and_one_of_another_source_are_refused() -> None:
    async with serve_behind(behind()) as (port, service):
        await ask(port, headers=with_fence(msgspec.structs.replace(GOOD, token=NUMBER_MAX)))
        lower = msgspec.structs.replace(GOOD, token=NUMBER_MAX - 1)
        stale = await ask(port, headers=with_fence(lower))
        mixed = await ask(port, headers=with_fence(msgspec.structs.replace(GOOD, lock=None)))

        assert (stale.status, stale.body["error"]) == (409, "fenced")
        assert str(NUMBER_MAX) in stale.body["detail"]
        assert stale.body["advice"] == "Stop work and discard the result."
        assert (mixed.status, mixed.body["error"]) == (409, "conflict")
        assert len(service.requests) == 1


@pytest.mark.parametrize("name", ["holdfast-fence", "HOLDFAST-FENCE", "hOlDfAsT-fEnCe"])
async def test_the_header_may_be_written_in_any_case(name: str) -> None:
    async with serve_behind(behind()) as (port, _service):
        assert (await ask(port, headers=[(name, GOOD.header)])).status == 200
        stale = msgspec.structs.replace(GOOD, token=6)
        assert (await ask(port, headers=[(name, stale.header)])).status == 409


@pytest.mark.parametrize(
    "values", [["7"], [""], [GOOD.header, GOOD.header], [f"{GOOD.header}, {GOOD.header}"]]
)
async def test_a_header_that_is_malformed_or_there_twice_is_a_bad_request(
    values: list[str],
) -> None:
    async with serve_behind(behind()) as (port, service):
        answer = await ask(port, headers=[(HEADER, value) for value in values])

        assert (answer.status, answer.body["error"]) == (400, "invalid")
        assert service.requests == []


async def test_a_fence_for_another_resource_is_a_bad_request_and_raises_no_mark() -> None:
    async with serve_behind(behind(resource=lambda scope: scope["path"].strip("/"))) as (
        port,
        _service,
    ):
        other = msgspec.structs.replace(GOOD, resource="account-18", token=99)
        wrong = await ask(port, headers=with_fence(other))
        right = await ask(port, headers=with_fence())

        assert wrong.status == 400
        assert "writes to account-17; its fence is for account-18" in wrong.body["detail"]
        assert right.status == 200


async def test_hostile_headers_are_bad_requests_and_never_break_the_server() -> None:
    async with serve_behind(behind()) as (port, service):
        for value in (*HOSTILE, b'7;resource="account-17"\r;job="j"'):
            line = await ask_raw(port, value)
            cut_off = len(value) > 65_536 and line == b""  # it hung up on what it would not read
            assert cut_off or line[9:12] in (b"400", b"431"), (value[:60], line)
        assert service.requests == []
        assert (await ask(port, headers=with_fence())).status == 200


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_headers_are_bad_requests_behind_a_server_that_lets_them_in(value: bytes) -> None:
    service = Service()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing of the body is read")

    scope: Scope = {"type": "http", "method": "PUT", "headers": [(HEADER.encode(), value)]}
    asyncio.run(FenceMiddleware(service, Guard())(scope, receive, send))

    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["error"] == "invalid"
    assert len(sent[1]["body"]) < 2000
    assert service.seen == []


class Failing(LocalRegistry):
    """A registry whose store cannot answer."""

    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    async def status_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Unavailable("away"), 503, "unavailable"),
        (ServerDown("the server restarts"), 503, "unavailable"),
        (Exhausted("too many"), 429, "exhausted"),
        (Corrupt("torn"), 500, "corrupt"),
    ],
)
async def test_a_store_that_cannot_answer_lets_nothing_through(
    error: HoldfastError, status: int, kind: str
) -> None:
    async with serve_behind(behind(Guard(RegistryAuthority(Failing(error))))) as (port, service):
        answer = await ask(port, headers=with_fence())

        assert (answer.status, answer.body["error"]) == (status, kind)
        assert answer.headers.get("retry-after") == ("1" if status == 503 else None)
        assert service.requests == []
        assert (await ask(port, "GET")).status == 200


async def test_websocket_and_lifespan_pass() -> None:
    async with serve_behind(behind()) as (port, service):
        assert await shake(port) == 101
        assert [scope["type"] for scope in service.seen] == ["lifespan", "websocket"]


def fence_of(grant: Grant, resource: str = "account-17") -> Fence:
    job, token = grant.job, grant.fencing_token
    return Fence(resource=resource, token=token, job_id=job.job_id, lock=job.spec.lock)


@pytest.mark.parametrize("lock", [None, "account-17"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_with_a_real_registry_only_the_owner_of_the_moment_gets_through(
    lock: str | None, kind: str, tmp_path: Path
) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    registry = await open_registry(url)
    service = Service()
    app = FenceMiddleware(service, Guard(RegistryAuthority(registry)))
    await registry.enqueue(JobRequest(spec=Spec(lock=lock), job_id="job-1"), actor="user:ana")

    async with served(app) as port:
        [first] = await registry.claim(["default"], owner="worker-7", lease=timedelta(hours=1))
        owner = await ask(port, headers=with_fence(fence_of(first)))
        forged = await ask(port, headers=with_fence(msgspec.structs.replace(fence_of(first), token=99)))
        await registry.release(first, delay=timedelta())
        between = await ask(port, headers=with_fence(fence_of(first)))
        [second] = await registry.claim(["default"], owner="worker-8", lease=timedelta(hours=1))
        zombie = await ask(port, headers=with_fence(fence_of(first, "never-written-to")))
        heir = await ask(port, headers=with_fence(fence_of(second)))
        await registry.complete(second, Success())
        after = await ask(port, headers=with_fence(fence_of(second)))
        unknown = await ask(
            port, headers=with_fence(msgspec.structs.replace(fence_of(second), job_id="job-2"))
        )

    assert (owner.status, heir.status) == (200, 200)
    for refused in (forged, between, zombie, after, unknown):
        assert (refused.status, refused.body["error"]) == (409, "fenced")
    assert [scope[SCOPE_KEY].token for scope in service.requests] == [
        first.fencing_token,
        second.fencing_token,
    ]
    await registry.close()


async def test_with_many_requests_at_once_what_gets_through_never_goes_back() -> None:
    tokens = [token * 37 % 101 + 1 for token in range(60)]

    async with serve_behind(behind()) as (port, service):
        asks = (ask(port, headers=with_fence(msgspec.structs.replace(GOOD, token=t))) for t in tokens)
        answers = await asyncio.gather(*asks)

        seen = [scope[SCOPE_KEY].token for scope in service.requests]
        assert seen == sorted(seen)
        assert seen[-1] == max(tokens)
        accepted = [t for t, a in zip(tokens, answers, strict=True) if a.status == 200]
        assert sorted(accepted) == seen
        assert {answer.status for answer in answers} <= {200, 409}
