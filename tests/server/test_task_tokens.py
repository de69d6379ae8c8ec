"""Task tokens, and the header that a key comes in: anything that is not exactly right is refused."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.access import Scope
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import ConnectClient, refusal_code
from tests.server.keyed_server import QUEUE, KeyedServer, count, key, update


def owning(caller: ConnectClient, token: str) -> list[Coroutine[Any, Any, Any]]:
    """All that job.v1 lets an owner do."""

    async def events() -> AsyncIterator[old.PublishJobEventsRequest]:
        event = old.JobEvent(sequence=100, event_type=old.EventType.HEARTBEAT)
        yield old.PublishJobEventsRequest(task_token=token, events=[event])

    done = old.CompleteJobRequest(task_token=token, job_result=old.JobResult(success=True))
    return [
        update(caller, token),
        caller.events.publish_job_events(events()),
        caller.jobs.complete_job(done),
    ]


def forgeries(token: str) -> list[str]:
    """The token with each of its bits flipped: of its text, and of what the text says."""
    texts = [
        token[:place] + chr(ord(letter) ^ 1 << bit) + token[place + 1 :]
        for place, letter in enumerate(token)
        for bit in range(8)
    ]
    raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for place, bit in ((place, bit) for place in range(len(raw)) for bit in range(8)):
        flipped = raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]
        texts.append(urlsafe_b64encode(flipped).rstrip(b"=").decode())
    return [*texts, token + "=", token + "A", f" {token}", f"{token}\n", token[:-1], token[1:]]


async def test_a_task_token_that_differs_in_one_bit_is_refused(keyed: KeyedServer) -> None:
    async def refusal_of(worker: ConnectClient, forged: str) -> Code | None:
        try:
            await update(worker, forged)
        except ConnectError as error:
            return error.code
        return None

    worker, subject = keyed.caller("work"), await keyed.subject("work", "running")

    accepted = [
        forged
        for forged in forgeries(subject.token)
        if await refusal_of(worker, forged) is not Code.NOT_FOUND
    ]

    assert accepted == []
    assert (await update(worker, subject.token)).lease_seconds > 0


async def test_a_token_pieced_together_from_two_is_refused(keyed: KeyedServer) -> None:
    worker = keyed.caller("work")
    one, two = [await keyed.subject("work", "running") for _ in range(2)]
    first, second = [urlsafe_b64decode(each.token + "=" * (-len(each.token) % 4)) for each in (one, two)]
    pieced = urlsafe_b64encode(first[:16] + second[16:]).rstrip(b"=").decode()
    crossed = old.CompleteJobRequest(
        task_token=one.token, job_result=old.JobResult(job_id=two.job_id, success=True)
    )

    assert [await refusal_code(call) for call in owning(worker, pieced)] == [Code.NOT_FOUND] * 3
    call = worker.jobs.complete_job(crossed)
    assert await refusal_code(call) is Code.INVALID_ARGUMENT
    assert not (await keyed.registry.status(one.job_id)).ended


async def test_the_token_of_an_older_attempt_is_refused(keyed: KeyedServer) -> None:
    worker, subject = keyed.caller("work"), await keyed.subject("work", "running")
    release = pb.ReleaseRequest(task_token=subject.token)
    await worker.registry.release(release)
    await keyed.registry.acquire(subject.job_id, owner="w-2")

    codes = [await refusal_code(call) for call in owning(worker, subject.token)]
    beat = pb.HeartbeatRequest(task_token=subject.token)

    assert codes == [Code.NOT_FOUND] * 3
    call = worker.registry.heartbeat(beat)
    assert await refusal_code(call) is Code.ABORTED


async def test_the_token_of_another_key_is_refused_though_both_may_work_there(
    keyed: KeyedServer,
) -> None:
    thief, subject = await key(keyed, "thief", Scope.WORK), await keyed.subject("work", "running")
    token = subject.token

    codes = [await refusal_code(call) for call in owning(thief, token)]
    for method, request in (
        ("heartbeat", pb.HeartbeatRequest(task_token=token)),
        ("publish", pb.PublishRequest(task_token=token)),
        ("aggregate", pb.AggregateRequest(task_token=token)),
        ("release", pb.ReleaseRequest(task_token=token)),
    ):
        call = getattr(thief.registry, method)(request)
        codes.append(await refusal_code(call))

    assert codes == [Code.NOT_FOUND] * 7
    assert (await update(keyed.caller("work"), token)).lease_seconds > 0


async def test_a_claim_repeated_under_another_key_gives_nothing_away(keyed: KeyedServer) -> None:
    """A worker sees the op_id of others' claims: it must not get their grants under it."""

    worker, thief = keyed.caller("work"), await key(keyed, "thief", Scope.WORK)
    far = await key(keyed, "far", Scope.WORK, queues=("other",))
    subject = await keyed.subject("work", "queued")
    claim = pb.ClaimRequest(queues=[QUEUE], owner="w-1", op_id="op-1")
    [grant] = (await worker.registry.claim(claim)).grants
    job = await keyed.registry.status(subject.job_id)

    [again] = (await worker.registry.claim(claim)).grants
    stolen = []
    for op_id in ("op-1", job.claim_op_id):
        asked = pb.ClaimRequest(queues=[QUEUE], owner="w-1", op_id=op_id)
        stolen += (await thief.registry.claim(asked)).grants
        asked.queues = ["other"]
        stolen += (await far.registry.claim(asked)).grants
        acquire = pb.AcquireRequest(job_id=job.job_id, owner="w-1", op_id=op_id)
        call = thief.registry.acquire(acquire)
        assert await refusal_code(call) is Code.FAILED_PRECONDITION

    assert again.task_token == grant.task_token
    assert stolen == []


async def test_a_dequeue_repeated_under_another_key_gives_nothing_away(keyed: KeyedServer) -> None:
    await keyed.subject("zoe", "queued", "command")
    asked = old.DequeueJobRequest(queue=QUEUE, request_id="018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11")

    async def dequeue(caller: ConnectClient) -> list[str]:
        answers = caller.jobs.dequeue_job(asked)
        return [answer.task_token async for answer in answers]

    mine = await dequeue(keyed.caller("work"))

    assert len(mine) == 1
    assert await dequeue(keyed.caller("work")) == mine
    assert await dequeue(await key(keyed, "thief", Scope.WORK)) == []


@pytest.mark.parametrize("form", ["bearer {}", "BEARER {}", "Bearer   {}", "Bearer {} "])
async def test_the_header_may_be_written_as_http_allows(form: str, keyed: KeyedServer) -> None:
    caller = keyed.caller("observe")
    caller.headers = {"authorization": form.format(keyed.keys["observe"])}

    await count(caller)


GARBAGE = (
    "",
    "Bearer",
    "Bearer hf_",
    "Basic aGY6eA==",
    "Token {}",
    "{}",
    "Bearer{}",
    "Bearer {} {}",
    "Bearer {},Bearer {}",
    "Bearer {}x",
    'Bearer "{}"',
    "Bearer Bearer {}",
    "Bearer " + "A" * 8000,
    "Bearer null",
    "Bearer hf_%00",
)


async def test_a_header_that_names_nobody_is_refused_with_words_and_without_the_key(
    keyed: KeyedServer,
) -> None:
    text = keyed.keys["observe"] or ""
    for form in GARBAGE:
        caller = keyed.caller("observe")
        caller.headers = {"authorization": form.replace("{}", text)}
        with pytest.raises(ConnectError) as caught:
            await count(caller)
        assert caught.value.code is Code.UNAUTHENTICATED, form
        assert "holdfast keys create" in caught.value.message
        assert text not in caught.value.message
