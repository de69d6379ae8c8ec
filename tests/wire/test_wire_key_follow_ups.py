"""Follow-ups pass the checks of an enqueue; one that does not refuses its completion, and the job goes on."""

import asyncio
from typing import Any

import pytest
from wire_access_calls import done
from wire_access_world import QUEUE, Caller, Stage, stage
from wire_key_world import key, play

from holdfast.core.access import Scope
from holdfast.core.outputs import Promise
from holdfast.ports import Filter
from holdfast.server import depth
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb


async def complete(caller: Caller, token: str, *specs: pb.Spec) -> pb.Answer:
    ends = done(token, pb.Success())
    ends.follow_ups = [pb.Request(spec=spec) for spec in specs]
    asked = pb.CompleteRequest(completions=[ends])
    return (await caller.registry.complete(asked, headers=caller.headers)).answers[0]


def error_of(answer: pb.Answer) -> pb.ErrorDetail:
    assert answer.answer is not None
    assert isinstance(answer.answer.value, pb.ErrorDetail), answer
    return answer.answer.value


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"replayed_from": "b-1"}, "use Replay or Resume"),
        ({"resumed_from": "b-1"}, "use Replay or Resume"),
        ({"lock": "billing:db"}, "begins with none that it reaches"),
        ({"queue": "far"}, "does not reach queue far"),
        ({"region": "us"}, "does not reach queue"),
    ],
)
def test_a_follow_up_passes_what_an_enqueue_passes(fields: dict[str, Any], words: str) -> None:
    async def body(here: Stage) -> None:
        worker = await key(here, "limited", Scope.WORK, queues=(QUEUE,), regions=("eu",))
        subject = await here.subject("limited", "running")
        spec: dict[str, Any] = {"queue": QUEUE, "kind": "report", **fields}
        asked = pb.Spec(**spec)
        fine = pb.Spec(queue=QUEUE, kind="report", lock=f"{QUEUE}:db")

        error = error_of(await complete(worker, subject.token, fine, asked))

        assert error.kind == "Denied"
        assert error.message.startswith("follow_ups[1]: ")
        assert words in error.message
        assert "The job has not ended" in error.advice
        assert not (await here.registry.get(subject.job_id)).ended
        taken = await complete(worker, subject.token, fine)
        assert taken.answer is not None
        assert taken.answer.field == "job"

    play(body)


def test_follow_ups_make_no_queue_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "FRESH_SECONDS", 0.0)

    async def main() -> None:
        async with stage() as here:
            here.served.app.context.depth._most = 5  # as --queue-limit 5
            worker, subject = here.caller("work"), await here.subject("work", "running")
            spec = pb.Spec(queue="next", kind="report")

            refused = error_of(await complete(worker, subject.token, *[spec] * 6))
            assert refused.kind == "Exhausted"
            assert not (await here.registry.get(subject.job_id)).ended
            for _ in range(2):  # a repeat makes none, so it is let in
                taken = await complete(worker, subject.token, *[spec] * 5)
                assert taken.answer is not None
                assert taken.answer.field == "job", taken

            assert len((await here.registry.list_jobs(Filter(queue="next"))).jobs) == 5

    asyncio.run(main())


def test_the_promise_of_a_follow_up_is_of_the_store_that_the_server_has() -> None:
    async def body(here: Stage) -> None:
        worker, subject = here.caller("work"), await here.subject("work", "running")
        outputs = await here.served.app.context.checking.outputs()
        assert outputs is not None
        spec = pb.Spec(queue="next", kind="report", outputs=pb.Promise(names=["table"]))

        await complete(worker, subject.token, spec)

        [made] = (await here.registry.list_jobs(Filter(queue="next"))).jobs
        assert made.spec.outputs == Promise(
            names=("table",), store=outputs.store_id, place=outputs.place
        )

    play(body)
