"""What each method shows of jobs out of reach, by the kind of its fields: a method that has a field of such a
kind, and no call of that kind here, fails (invariant I32)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
from connectrpc.errors import ConnectError
from msgspec import structs
from protobuf import Message

from holdfast.core.access import Principal, Scope
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.server.verbs.access import FEED, JOBS, Cursors, history_of, log_of
from holdfast.system import SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.access_calls import METHOD_CALLS, ask, claim, done
from tests.server.connect_client import ConnectClient
from tests.server.keyed_server import QUEUE, STRANGER, KeyedServer, Subject, fact, open_keyed_server
from tests.server.test_access import SERVICES

KINDS = {
    "item": {"job_id", "job_ids", "task_token", "key_id"},
    "page": {"limit", "page", "page_size", "max_jobs", "which"},
    "cursor": {"after"},
    "wait": {"seconds", "wait_seconds", "mark"},
    "follow-up": {"follow_ups"},
    "name": {"key", "name", "requests", "create", "given_id", "request_id", "op_id", "events"},
}
"""What a field of a request may be; of a request about an item, an op_id or request_id is of that item."""

_PLAIN = """
    actor reuse step handle error queues owner kinds lease heartbeat_interval region executor
    keeps_timeout progress checkpoint completions reason delay undelivered hard version done total
    trouble found evidence override missing force promise dry_run again lines newest queue
    without_output claim older_than output_older_than scopes regions life job_params
    visibility_timeout_seconds worker_id heartbeat_interval_seconds job_result state from_sequence
    from_timestamp event_filter attempt success failure stopped compensated
    stream since tail thread_kinds thread_slots thread_busy instance executors slots busy host pid app
    paused leaving started_at
"""
PLAIN = set(_PLAIN.split())
"""Fields by which nothing of others can be meant."""

PARTS: dict[str, Any] = {"completions": pb.Completion, "claim": pb.ClaimRequest}
"""Fields whose own fields count as those of their request."""


def fields_of(message: Any) -> Iterator[str]:  # noqa: ANN401
    for field in message.fields:
        yield field.name
        if field.name in PARTS:
            yield from fields_of(PARTS[field.name].desc())


def kinds_of(fields: set[str]) -> set[str]:
    about = bool(fields & KINDS["item"])
    named = {"op_id", "request_id", "events"} if about else set()
    return {kind for kind, names in KINDS.items() if fields & (names - named)}


METHODS = {
    f"{service.desc().name}.{method.name}": set(fields_of(method.input))
    for service in SERVICES
    for method in service.desc().methods
}

ELSEWHERE = Principal("elsewhere", frozenset(Scope), ("other*",), key_id="0" * 12)
"""The caller, who reaches other* and nothing else; the jobs of others are in queue work."""

Asked: TypeAlias = Callable[[str], Message]

CURSORS: dict[str, tuple[str, Asked]] = {
    "RegistryService.ListJobs": (JOBS, lambda after: pb.ListJobsRequest(after=after)),
    "RegistryService.Events": (FEED, lambda after: pb.EventsRequest(after=after)),
    "RegistryService.Logs": (
        log_of("other:1"),
        lambda after: pb.LogsRequest(job_id="other:1", after=after),
    ),
    "RegistryService.History": (
        history_of("other:1"),
        lambda after: pb.HistoryRequest(job_id="other:1", after=after),
    ),
    "RegistryService.Watch": (FEED, lambda after: pb.WatchRequest(after=after)),
}
NOT_SEALED = {"RegistryService.ListOutputs"}
"""Its cursor is the name of an output of the one job."""

WAITS: dict[str, Asked] = {
    "RegistryService.Claim": lambda _: pb.ClaimRequest(queues=[QUEUE], owner="w-1", wait_seconds=25),
    "RegistryService.Changes": lambda job_id: pb.ChangesRequest(job_id=job_id, mark="1.0", seconds=25),
    "RegistryService.Changes for a claim": lambda _: pb.ChangesRequest(claim=claim(), seconds=25),
}


def enqueue(**fields: Any) -> pb.JobRequest:  # noqa: ANN401
    return pb.JobRequest(spec=pb.Spec(queue="other-1", lock=fields.pop("lock", None)), **fields)


def recorded(name: str) -> pb.RecordRequest:
    event = fact(None)
    event.given_id = name
    return pb.RecordRequest(events=[event])


NAMES: dict[str, tuple[Asked, ...]] = {
    "RegistryService.Enqueue": (
        lambda name: pb.EnqueueRequest(requests=[enqueue(job_id=name)]),
        lambda name: pb.EnqueueRequest(requests=[enqueue(lock=name)]),
    ),
    "RegistryService.Acquire": (
        lambda name: pb.AcquireRequest(job_id=name, owner="w", create=enqueue(job_id=name)),
        lambda name: pb.AcquireRequest(job_id=name, owner="w", create=enqueue(job_id="other:2")),
    ),
    "RegistryService.Locks": (lambda name: pb.LocksRequest(key=name),),
    "RegistryService.CreateKey": (
        lambda name: pb.CreateKeyRequest(name=name, scopes=["submit"]),
    ),
    "RegistryService.Record": (recorded,),
}  # fmt: skip
OF_ONE_KEY = {
    "RegistryService.Announce",
    "RegistryService.Claim",
    "JobService.DequeueJob",
    "JobService.EnqueueJob",
}
"""Names that are kept with their key or queue: see `test_task_tokens.py` and `test_key_names.py`."""

FOLLOW_UPS = {"RegistryService.Complete"}


def of_kind(kind: str) -> set[str]:
    return {name for name, fields in METHODS.items() if kind in kinds_of(fields)}


def test_every_field_of_every_request_is_of_a_kind_that_is_called_here() -> None:
    known = PLAIN.union(*KINDS.values())

    assert {name: fields - known for name, fields in METHODS.items() if fields - known} == {}
    assert of_kind("cursor") == set(CURSORS) | NOT_SEALED
    assert of_kind("wait") == {name.partition(" ")[0] for name in WAITS}
    assert of_kind("follow-up") == FOLLOW_UPS
    assert of_kind("name") == set(NAMES) | OF_ONE_KEY
    assert of_kind("item") | of_kind("page") <= {name.partition(" ")[0] for name in METHOD_CALLS}


@asynccontextmanager
async def as_outsider() -> AsyncIterator[tuple[KeyedServer, ConnectClient]]:
    async with open_keyed_server() as here:
        yield here, here.caller("elsewhere")


async def said(caller: ConnectClient, method: str, asked: Message) -> str:
    """All that the caller is told: the answer, or the refusal with its details."""
    word = method.partition(" ")[0].partition(".")[2]
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in word).lstrip("_")
    try:
        answer = getattr(caller.registry, snake)(asked)
        if hasattr(answer, "__anext__"):
            return repr(await anext(answer))
        return repr(await answer)
    except ConnectError as error:
        details = [one.value(pb.ErrorDetail) for one in error.details]
        return f"{error.code} {error.message} {details!r}"


async def test_an_item_out_of_reach_is_told_of_like_one_that_is_not_there() -> None:
    async with as_outsider() as (here, caller):
        items = {name: way for name, way in METHOD_CALLS.items() if name.partition(" ")[0] in of_kind("item")}
        for name, way in items.items():
            if way.state == "key" or name.endswith(("of all", "about no job", "for a claim")):
                continue
            there = await here.held_by("elsewhere", await here.subject(STRANGER, way.state))
            fresh, token = SystemIds().new(), there.token[:-8] + there.token[:8]
            absent = structs.replace(there, job_id=fresh, token=token)
            told = [(await ask(way, caller, one)) for one in (there, absent)]
            await here.free(there)

            assert told[0].outcome == told[1].outcome, name
            raw = told[0].raw.replace(there.job_id.encode(), fresh.encode())
            assert raw == told[1].raw, name


async def test_a_page_is_the_same_however_many_jobs_are_out_of_reach() -> None:
    async with as_outsider() as (here, caller):
        start = Subject(cursor=await here.registry.tail())
        for name in sorted(of_kind("page")):
            way, empty = METHOD_CALLS[name], await here.held_by("elsewhere", start)
            before = await ask(way, caller, empty)
            subjects = [await here.subject(STRANGER, "running") for _ in range(3)]
            after = await ask(way, caller, empty)
            for one in subjects:
                await here.free(one)

            assert [before.outcome, len(before.raw)] == [after.outcome, len(after.raw)], name


@pytest.mark.parametrize("method", CURSORS)
async def test_a_cursor_is_good_for_its_key_and_its_use_alone(method: str) -> None:
    async with as_outsider() as (here, caller):
        asked = JobRequest(spec=Spec(queue="other-1"), job_id="other:1")
        await here.registry.enqueue(asked, actor="user:root")
        use, request = CURSORS[method]
        cursors, place = Cursors(here.registry), await here.registry.tail()
        another = structs.replace(ELSEWHERE, name="another")

        for wrong in (
            place,
            await cursors.seal(another, use, place),
            await cursors.seal(ELSEWHERE, "another use", place),
        ):
            assert "INVALID_ARGUMENT" in await said(caller, method, request(wrong))
        right = await cursors.seal(ELSEWHERE, use, place)
        assert "INVALID_ARGUMENT" not in await said(caller, method, request(right))


async def test_a_wait_for_what_is_out_of_reach_is_refused_at_once() -> None:
    async with as_outsider() as (here, caller):
        subject = await here.subject(STRANGER, "queued")

        async with asyncio.timeout(20):  # each would wait for 25 s
            told = {
                method: await said(caller, method, asked(subject.job_id)) for method, asked in WAITS.items()
            }

        refused = {method: words.split()[0] for method, words in told.items()}
        assert set(refused.values()) == {"Code.NOT_FOUND", "Code.PERMISSION_DENIED"}


@pytest.mark.parametrize("method", NAMES)
async def test_a_name_that_others_have_is_answered_like_one_that_nobody_has(method: str) -> None:
    async with as_outsider() as (here, caller):
        spec = Spec(queue=QUEUE, lock="work:there")
        await here.registry.enqueue(JobRequest(spec=spec, job_id="work:there"), actor="user:root")
        await here.registry.acquire("work:there", owner="w-1")
        await here.registry.create_key(
            name="work:there", scopes=(Scope.SUBMIT,), queues=(QUEUE,), actor="user:root"
        )
        work = ConnectClient(here.server.url, here.keys["work"])
        await work.registry.record(recorded("work:there"))

        for asked in NAMES[method]:
            taken = await said(caller, method, asked("work:there"))
            assert taken.replace("there", "other") == await said(caller, method, asked("work:other"))


async def test_a_follow_up_out_of_reach_refuses_its_completion() -> None:
    async with as_outsider() as (here, caller):
        asked = JobRequest(spec=Spec(queue="other-1"))
        job = await here.registry.enqueue(asked, actor="user:root")
        grant = await here.registry.acquire(job.job_id, owner="w-1")
        end = done(await here.registry.seal_task_token(grant, "elsewhere"), pb.Success())
        end.follow_ups = [pb.JobRequest(spec=pb.Spec(queue=QUEUE))]

        told = await said(caller, "RegistryService.Complete", pb.CompleteRequest(completions=[end]))

        assert "does not reach queue work" in told
        assert not (await here.registry.status(job.job_id)).ended
