"""Arguments and tracebacks at a server with keys: who may see them, and who may search by them."""

import msgspec
import pytest
from connectrpc.errors import ConnectError
from protobuf import Message

from holdfast.core.access import Scope
from holdfast.core.job import Failure
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.connect_client import ConnectClient
from tests.server.keyed_server import KeyedServer, key

TRACE = "Traceback: canary-in-traceback"
FAILED = Failure(message="'b'", code="KeyError", traceback=TRACE)


async def failed_job(keyed: KeyedServer, job_id: str = "j", submitter: str = "zoe") -> None:
    payload = msgspec.Raw(b'{"seed": 7}')
    spec = Spec(kind="fit", queue="work", payload=payload, retry=Retry(max_failures=1))
    request = JobRequest(spec=spec, job_id=job_id, submitted_by=f"key:{submitter}")
    await keyed.registry.enqueue(request, actor="user:zoe")
    await keyed.registry.complete(await keyed.registry.acquire(job_id, owner="w"), FAILED)


async def listed(caller: ConnectClient, **arguments: str) -> list[str]:
    which = pb.JobFilter(arguments=arguments)
    page = await caller.registry.list_jobs(pb.ListJobsRequest(which=which))
    return [job.job_id for job in page.jobs]


@pytest.mark.parametrize(("scope", "seen"), [(Scope.DATA, True), (Scope.ADMIN, True), (Scope.OBSERVE, False)])
async def test_a_traceback_is_shown_to_those_who_may_read_the_job(
    keyed: KeyedServer, scope: Scope, seen: bool
) -> None:
    await failed_job(keyed)
    caller = await key(keyed, "reader", Scope.OBSERVE, scope)

    told: list[Message] = [
        await caller.registry.status(pb.StatusRequest(job_ids=["j"])),
        await caller.registry.list_jobs(pb.ListJobsRequest()),
        await caller.registry.history(pb.HistoryRequest(job_id="j")),
        await caller.registry.logs(pb.LogsRequest(job_id="j")),
        await caller.registry.events(pb.EventsRequest()),
    ]

    assert [TRACE.encode() in one.to_binary() for one in told] == [seen] * len(told)
    assert TRACE.encode() not in (await caller.registry.why(pb.WhyRequest(job_id="j"))).to_binary()


async def test_the_failure_of_a_job_has_its_traceback(keyed: KeyedServer) -> None:
    await failed_job(keyed)
    caller = await key(keyed, "reader", Scope.OBSERVE, Scope.DATA)

    page = await caller.registry.list_jobs(pb.ListJobsRequest())

    error = page.jobs[0].error
    assert error is not None
    assert (error.code, error.message, error.traceback) == ("KeyError", "'b'", TRACE)
    assert page.jobs[0].reason == "exhausted_retries: KeyError: 'b'"


async def test_a_key_finds_by_arguments_what_it_may_read(keyed: KeyedServer) -> None:
    await failed_job(keyed, "theirs")
    await failed_job(keyed, "mine", submitter="reader")

    reader = await key(keyed, "all", Scope.OBSERVE, Scope.DATA)
    submitter = await key(keyed, "reader", Scope.OBSERVE, Scope.SUBMIT)
    admin = await key(keyed, "chief", Scope.ADMIN)

    assert await listed(reader, seed="7") == await listed(admin, seed="7") == ["theirs", "mine"]
    assert await listed(reader, seed="8") == []
    assert await listed(submitter, seed="7") == ["mine"]
    assert await listed(submitter) == ["theirs", "mine"]


@pytest.mark.parametrize("scope", [Scope.OBSERVE, Scope.WORK])
async def test_a_key_that_may_read_no_job_cannot_search_by_arguments(
    keyed: KeyedServer, scope: Scope
) -> None:
    await failed_job(keyed)
    caller = await key(keyed, "curious", scope)

    with pytest.raises(ConnectError, match="observe:data or submit"):
        await listed(caller, seed="7")
