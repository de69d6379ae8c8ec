"""Names that callers choose follow queues: no key takes, suppresses or holds up what it does not reach."""

from collections.abc import Coroutine
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.access import Scope
from holdfast.core.derived_ids import derived_id, follow_up_id
from holdfast.core.spec import Spec
from holdfast.outputs.cache_lookup import cached_id
from holdfast.ports import JobRequest
from holdfast.server.queue_limit import QueueLimit
from holdfast.system import SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import ConnectClient, refusal_code
from tests.server.keyed_server import KeyedServer, create, fact, key

ALL = tuple(Scope)


async def enqueue(caller: ConnectClient, job_id: str | None = None, **spec: Any) -> pb.Job:  # noqa: ANN401
    asked = pb.JobRequest(spec=pb.Spec(**spec), job_id=job_id)
    call = caller.registry.enqueue(pb.EnqueueRequest(requests=[asked]))
    return (await call).jobs[0]


async def record(caller: ConnectClient, job_id: str | None, given_id: str) -> int:
    event = fact(job_id)
    event.given_id = given_id
    asked = pb.RecordRequest(events=[event])
    return (await caller.registry.record(asked)).recorded


async def test_an_event_id_of_one_key_says_nothing_about_the_facts_of_another(
    keyed: KeyedServer,
) -> None:
    ana = await key(keyed, "ana", Scope.SUBMIT, Scope.OBSERVE, queues=("a*",))
    bob = await key(keyed, "bob", Scope.SUBMIT, Scope.OBSERVE, queues=("b*",))
    heir = await key(keyed, "heir", Scope.SUBMIT, queues=("b*",))
    root = await key(keyed, "root", *ALL)
    first, second = await enqueue(ana, queue="a1"), await enqueue(bob, queue="b1")

    told = [
        await record(ana, first.job_id, "inv-1"),
        await record(bob, second.job_id, "inv-1"),
        await record(root, second.job_id, "inv-1"),  # the same fact, whoever tells it
        await record(ana, None, "inv-1"),
        await record(bob, None, "inv-1"),
        await record(heir, None, "inv-1"),  # a key of the same reach, as after a rotation
        await record(root, None, "inv-1"),
        await record(root, None, "inv-1"),
    ]

    assert told == [1, 1, 0, 1, 1, 0, 1, 0]
    log = await bob.registry.logs(pb.LogsRequest(job_id=second.job_id))
    assert [event.given_id for event in log.events if event.given_id] == ["inv-1"]
    feed = await root.registry.events(pb.EventsRequest())
    ours = [event for event in feed.events if event.event_type == "invoice_sent"]
    assert [event.given_id for event in ours] == ["inv-1"] * 5


ALLOWED = ("emails:nightly-2026-11-18", "emails:eu:nightly")
REFUSED = (
    "nightly",
    "emails",
    "billing:nightly",
    "billing:emails:nightly",
    "emails:uk:nightly",
    ":nightly",
)


@pytest.mark.parametrize("what", ["job_id", "lock", "acquired"])
async def test_a_key_of_some_queues_chooses_names_that_begin_with_one_of_them(
    what: str, keyed: KeyedServer
) -> None:
    """The queue ends at the last colon: emails:uk is a queue of its own, and not in reach."""

    async def choose(caller: ConnectClient, name: str) -> object:
        if what == "lock":
            return await enqueue(caller, queue="emails", lock=name)
        if what == "job_id":
            return await enqueue(caller, name, queue="emails")
        spec = pb.JobRequest(spec=pb.Spec(queue="emails"), job_id=name)
        asked = pb.AcquireRequest(job_id=name, owner="w-1", create=spec)
        return await caller.registry.acquire(asked)

    caller = await key(keyed, "mail", *ALL, queues=("emails", "emails:eu"))
    root = await key(keyed, "root", *ALL)
    for name in REFUSED:
        with pytest.raises(ConnectError, match="does not begin with one that it reaches") as refused:
            await choose(caller, name)
        assert refused.value.code is Code.PERMISSION_DENIED, name
    assert (await keyed.registry.list_jobs()).jobs == ()
    for name in ALLOWED:
        await choose(caller, name)
    await choose(root, "nightly")


async def test_a_key_of_some_queues_cannot_take_an_id_that_is_made_of_other_names(
    keyed: KeyedServer,
) -> None:
    caller = await key(keyed, "mail", *ALL, queues=("emails",))
    theirs = derived_id("billing", "nightly")
    after = follow_up_id("billing:1", 1, 0)

    for name in (theirs, theirs.upper(), after):
        assert await refusal_code(enqueue(caller, name, queue="emails")) is Code.PERMISSION_DENIED
    mine = SystemIds().new()
    assert (await enqueue(caller, mine, queue="emails")).job_id == mine


@pytest.mark.parametrize("kind", ["report", "invoice"])
async def test_a_name_that_a_hidden_job_has_is_taken_and_nothing_else_is_said(
    kind: str, keyed: KeyedServer
) -> None:
    """Whether it was asked for in the same words or in others."""

    caller = await key(keyed, "mail", *ALL, queues=("emails",))
    spec = Spec(queue="billing", kind="report")
    await keyed.registry.enqueue(JobRequest(spec=spec, job_id="emails:1"), actor="user:root")
    await keyed.registry.acquire("emails:1", owner="secret-worker")
    asked = pb.JobRequest(spec=pb.Spec(queue="emails", kind=kind), job_id="emails:1")
    create = pb.AcquireRequest(job_id="emails:1", owner="w-1", create=asked)

    for call in (
        enqueue(caller, "emails:1", queue="emails", kind=kind),
        caller.registry.acquire(create),
    ):
        with pytest.raises(ConnectError) as refused:
            await call
        [detail] = [one.value(pb.ErrorDetail) for one in refused.value.details]
        assert detail is not None
        assert detail.message == "A request_id or job_id is taken already, by another caller."
        assert (detail.kind, detail.job_id, detail.version) == ("Conflict", "", 0)


async def test_how_often_a_lock_was_held_is_told_of_ones_own_names_and_holders_alone(
    keyed: KeyedServer,
) -> None:
    caller = await key(keyed, "mail", *ALL, queues=("emails",))
    for lock in ("billing:db", "emails:db"):
        spec = Spec(queue="billing", lock=lock)
        job = await keyed.registry.enqueue(JobRequest(spec=spec), actor="user:root")
        await keyed.registry.acquire(job.job_id, owner="w-9")

    tokens = {}
    for lock in ("billing:db", "emails:db"):
        asked = pb.LocksRequest(key=lock)
        seen = await caller.registry.locks(asked)
        tokens[lock] = (seen.token, seen.holder)

    assert tokens["billing:db"] == (0, "")
    assert tokens["emails:db"] == (1, "")


async def test_how_many_leases_lapsed_elsewhere_is_told_to_those_who_reach_everything(
    keyed: KeyedServer,
) -> None:
    mail, root = (
        await key(keyed, "mail", *ALL, queues=("emails",)),
        await key(keyed, "root", *ALL),
    )
    told = []
    for caller in (mail, root):
        job = await keyed.registry.enqueue(JobRequest(spec=Spec(queue="b")), actor="user:root")
        await keyed.registry.acquire(job.job_id, owner="w-9")
        keyed.clock.advance(3600)
        answer = await caller.registry.expire(pb.ExpireRequest())
        told.append(answer.expired)
        assert (await keyed.registry.status(job.job_id)).crashes == 1

    assert told == [0, 1]


async def told(call: Coroutine[Any, Any, Any]) -> str:
    """What the refusal of the call says."""
    with pytest.raises(ConnectError) as refused:
        await call
    return refused.value.message


async def test_to_acquire_a_name_of_others_says_nothing_when_another_is_to_be_made(
    keyed: KeyedServer,
) -> None:
    caller = await key(keyed, "mail", *ALL, queues=("emails",))
    there = JobRequest(spec=Spec(queue="billing"), job_id="billing:nightly")
    await keyed.registry.enqueue(there, actor="user:root")

    answers = set()
    for name in ("billing:nightly", "billing:unknown"):
        create = pb.JobRequest(spec=pb.Spec(queue="emails"), job_id="emails:mine")
        asked = pb.AcquireRequest(job_id=name, owner="w-1", create=create)
        answers.add(await told(caller.registry.acquire(asked)))

    assert answers == {"The job to create must name the job_id that is acquired."}


async def test_the_job_that_tells_of_reused_outputs_has_a_name_of_the_same_queue(
    keyed: KeyedServer,
) -> None:
    thief = await key(keyed, "thief", *ALL, queues=("c*",))
    bill = await key(keyed, "bill", *ALL, queues=("billing",))
    name = cached_id("billing:nightly")

    assert await refusal_code(enqueue(thief, name, queue="c1")) is Code.PERMISSION_DENIED
    assert (await enqueue(bill, name, queue="billing")).job_id == name


async def test_a_key_of_some_queues_learns_and_takes_no_names_of_other_keys(
    keyed: KeyedServer,
) -> None:
    """Their jobs, owners and the two keys that a name may have are told apart by it."""

    maker = await key(keyed, "emails:boss", *ALL, queues=("emails",))
    await key(keyed, "payments", Scope.SUBMIT, queues=("billing",))
    await key(keyed, "mail", Scope.WORK, queues=("emails",))

    words = {
        (await told(create(maker, name=name, scopes=["submit"]))).replace(name, "NAME")
        for name in ("payments", "unheard-of", "billing:w")
    }
    made = [
        (await create(maker, name=name, scopes=["submit"])).key
        for name in ("emails:w", "emails:boss", "mail")
    ]

    assert len(words) == 1
    assert [one and one.name for one in made] == ["emails:w", "emails:boss", "mail"]


async def test_a_repeat_over_job_v1_tells_nothing_of_a_job_that_another_key_has_asked_for(
    keyed: KeyedServer,
) -> None:
    ana = await key(keyed, "ana", Scope.SUBMIT, queues=("emails",))
    bob = await key(keyed, "bob", Scope.SUBMIT, queues=("emails",))
    asked = old.EnqueueJobRequest(
        request_id=SystemIds().new(),
        queue="emails",
        job_params=old.JobParams(command="true"),
    )

    first = await ana.jobs.enqueue_job(asked)
    again = await ana.jobs.enqueue_job(asked)
    words = await told(bob.jobs.enqueue_job(asked))

    assert first.job_id == again.job_id
    assert words == "A request_id or job_id is taken already, by another caller."


@pytest.mark.parametrize("protocol", ["holdfast.v1", "job.v1"])
async def test_whether_a_job_was_asked_for_in_the_same_words_is_told_to_its_readers(
    protocol: str, keyed: KeyedServer
) -> None:
    """Who may see a job, and not into it, could else try payloads until one is the same."""

    ana = await key(keyed, "ana", Scope.SUBMIT, queues=("emails",))
    sees = await key(keyed, "sees", Scope.SUBMIT, Scope.OBSERVE, queues=("emails",))
    works = await key(keyed, "works", Scope.SUBMIT, Scope.WORK, queues=("emails",))
    reads = await key(keyed, "reads", Scope.SUBMIT, Scope.DATA, Scope.OBSERVE, queues=("emails",))
    request_id = SystemIds().new()

    def ask(caller: ConnectClient, payload: str) -> Coroutine[Any, Any, Any]:
        if protocol == "job.v1":
            params = old.JobParams(command=payload)
            asked = old.EnqueueJobRequest(request_id=request_id, queue="emails", job_params=params)
            return caller.jobs.enqueue_job(asked)
        spec = pb.Spec(queue="emails", kind="report", payload=f'"{payload}"')
        one = pb.JobRequest(spec=spec, request_id=request_id)
        many = pb.EnqueueRequest(requests=[one])
        return caller.registry.enqueue(many)

    await ask(ana, "secret")
    words = {await told(ask(caller, payload)) for caller in (sees, works) for payload in ("secret", "guess")}

    assert words == {"A request_id or job_id is taken already, by another caller."}
    await ask(ana, "secret")
    await ask(reads, "secret")
    assert "for a different request" in await told(ask(reads, "guess"))


@pytest.mark.parametrize("kind", ["report", "invoice"])
async def test_a_refusal_of_one_does_not_say_that_nothing_of_its_batch_was_made(
    kind: str, keyed: KeyedServer
) -> None:
    ana = await key(keyed, "ana", Scope.SUBMIT, queues=("emails",))
    bob = await key(keyed, "bob", Scope.SUBMIT, queues=("emails",))
    await enqueue(ana, "emails:1", queue="emails", kind="report")
    spec = pb.Spec(queue="emails", kind=kind)
    batch = [pb.JobRequest(spec=spec, job_id=f"emails:{n}") for n in (0, 1, 2)]
    call = bob.registry.enqueue(pb.EnqueueRequest(requests=batch))

    words = await told(call)

    assert words == (
        "A request_id or job_id is taken already, by another caller."
        " Other jobs of the same call may have been made."
    )
    assert None not in await keyed.registry.status_many(["emails:0", "emails:2"])


async def test_a_full_queue_does_not_count_its_jobs_for_those_who_may_not(
    keyed: KeyedServer,
) -> None:
    ana = await key(keyed, "ana", Scope.SUBMIT, queues=("emails",))
    keyed.server.app.context.queue_limit = QueueLimit(keyed.registry, keyed.clock, most=2)
    for _ in range(2):
        await keyed.registry.enqueue(JobRequest(spec=Spec(queue="emails")), actor="user:root")
    batch = pb.EnqueueRequest(requests=[pb.JobRequest(spec=pb.Spec(queue="emails"))])

    words = await told(ana.registry.enqueue(batch))

    assert words == (
        "Queue emails is full, or would be: at most 2 jobs may wait in it. Add workers, or send less."
    )
