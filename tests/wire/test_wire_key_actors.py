"""In whose name a key acts, and that each item of a batch is judged on its own."""

from connectrpc.code import Code
from protobuf.wkt import Timestamp
from wire_access_calls import done
from wire_access_world import ALL, QUEUE, Stage, fact
from wire_key_world import create, key, play, refusal

from holdfast.core.access import Scope
from holdfast.ports import Filter
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb


def follow_up(queue: str) -> pb.Request:
    return pb.Request(spec=pb.Spec(kind="report", queue=queue), submitted_by="user:admin")


def test_a_worker_submits_nothing_but_follow_ups_into_its_own_queues() -> None:
    async def body(here: Stage) -> None:
        worker = await key(here, "limited", Scope.WORK, queues=(QUEUE, "next"))
        subject = await here.subject("limited", "running")

        async def complete(queue: str) -> pb.Answer:
            ends = done(subject.token, pb.Success())
            ends.follow_ups = [follow_up(queue)]
            asked = pb.CompleteRequest(completions=[ends])
            return (await worker.registry.complete(asked, headers=worker.headers)).answers[0]

        refused, before = await complete("far"), await here.registry.get(subject.job_id)
        taken = await complete("next")

        [made] = (await here.registry.list_jobs(Filter(queue="next"))).jobs
        assert refused.answer is not None
        assert (refused.answer.field, taken.answer and taken.answer.field) == ("error", "job")
        assert not before.ended
        assert made.submitted_by == "worker:w-1"
        asked = pb.EnqueueRequest(requests=[follow_up(QUEUE)])
        call = worker.registry.enqueue(asked, headers=worker.headers)
        assert await refusal(call) is Code.PERMISSION_DENIED

    play(body)


def test_nobody_acts_in_the_name_of_somebody_else() -> None:
    async def body(here: Stage) -> None:
        root, forged = await key(here, "root", *ALL), "user:admin"
        asked = pb.EnqueueRequest(requests=[follow_up(QUEUE)], actor=forged)
        [job] = (await root.registry.enqueue(asked, headers=root.headers)).jobs
        claim = pb.ClaimRequest(queues=[QUEUE], owner="w-1")
        [grant] = (await root.registry.claim(claim, headers=root.headers)).grants
        said = pb.Event(
            event_type="custom",
            event_class="worker",
            occurred_at=Timestamp(seconds=1),
            sequence=1,
            actor=forged,
        )
        fact = pb.Event(
            event_type="sent",
            event_class="external",
            occurred_at=Timestamp(seconds=1),
            given_id="fact-1",
            job_id=job.job_id,
            actor=forged,
        )
        publish = pb.PublishRequest(task_token=grant.task_token, events=[said])
        await root.registry.publish(publish, headers=root.headers)
        await root.registry.record(pb.RecordRequest(events=[fact]), headers=root.headers)
        cancel = pb.CancelRequest(job_id=job.job_id, actor=forged, hard=True)
        await root.registry.cancel(cancel, headers=root.headers)
        made = await create(root, name="new", scopes=["work"], queues=["*"], actor=forged)

        log = (await here.registry.log(job.job_id)).events
        assert job.submitted_by == "key:root"
        assert {event.actor for event in log} == {"user:root", "worker:w-1@root"}
        assert made.key is not None
        assert made.key.created_by == "user:root"

    play(body)


def test_each_item_of_a_batch_is_judged_on_its_own() -> None:
    """What the first may be says nothing about the others."""

    async def body(here: Stage) -> None:
        caller = await key(here, "limited", *ALL, queues=("other", QUEUE), regions=("us",))
        far, token = await here.subject("zoe", "running"), "A" * 60
        near = follow_up("other")
        [mine] = (
            await caller.registry.enqueue(
                pb.EnqueueRequest(requests=[near]), headers=caller.headers
            )
        ).jobs
        claim = pb.ClaimRequest(queues=["other"], owner="w-1")
        [grant] = (await caller.registry.claim(claim, headers=caller.headers)).grants

        mixed = pb.EnqueueRequest(requests=[near, follow_up("third")])
        claims = pb.ClaimRequest(queues=["other", "third"], owner="w-1")
        facts = [fact(mine.job_id), fact(far.job_id)]
        codes = [
            await refusal(caller.registry.enqueue(mixed, headers=caller.headers)),
            await refusal(caller.registry.claim(claims, headers=caller.headers)),
            await refusal(
                caller.registry.record(pb.RecordRequest(events=facts), headers=caller.headers)
            ),
        ]
        asked = pb.GetJobsRequest(job_ids=[far.job_id, mine.job_id])
        shown = (await caller.registry.get_jobs(asked, headers=caller.headers)).answers
        tokens = (token, far.token, grant.task_token)
        ends = pb.CompleteRequest(completions=[done(one, pb.Success()) for one in tokens])
        ended = await caller.registry.complete(ends, headers=caller.headers)

        denied, missing = Code.PERMISSION_DENIED, Code.NOT_FOUND
        assert codes == [denied, denied, missing]
        assert sum((await here.registry.counts()).values()) == 2
        assert [one.answer and one.answer.field for one in shown] == [None, "job"]
        assert [one.answer and one.answer.field for one in ended.answers] == [
            "error",
            "error",
            "job",
        ]
        assert not (await here.registry.get(far.job_id)).ended
        assert all(
            event.given_id is None for event in (await here.registry.log(mine.job_id)).events
        )

    play(body)
