"""Follow-ups pass the checks of an enqueue; one that does not refuses its completion, and the job goes on."""

from typing import Any

import pytest

from holdfast.core.access import Scope
from holdfast.core.outputs import OutputPromise
from holdfast.ports import JobFilter
from holdfast.server import queue_limit
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.access_calls import done
from tests.server.connect_client import ConnectClient
from tests.server.keyed_server import QUEUE, KeyedServer, key, open_keyed_server


async def complete(caller: ConnectClient, token: str, *specs: pb.Spec) -> pb.JobOrError:
    ends = done(token, pb.Success())
    ends.follow_ups = [pb.JobRequest(spec=spec) for spec in specs]
    asked = pb.CompleteRequest(completions=[ends])
    return (await caller.registry.complete(asked)).answers[0]


def error_of(answer: pb.JobOrError) -> pb.ErrorDetail:
    assert answer.answer is not None
    assert isinstance(answer.answer.value, pb.ErrorDetail), answer
    return answer.answer.value


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"replayed_from": "b-1"}, "use Replay or Resume"),
        ({"resumed_from": "b-1"}, "use Replay or Resume"),
        ({"lock": "billing:db"}, "does not begin with one that it reaches"),
        ({"queue": "far"}, "does not reach queue far"),
        ({"region": "us"}, "does not reach queue"),
    ],
)
async def test_a_follow_up_passes_what_an_enqueue_passes(
    fields: dict[str, Any], words: str, keyed: KeyedServer
) -> None:
    worker = await key(keyed, "limited", Scope.WORK, queues=(QUEUE,), regions=("eu",))
    subject = await keyed.subject("limited", "running")
    spec: dict[str, Any] = {"queue": QUEUE, "kind": "report", **fields}
    asked = pb.Spec(**spec)
    fine = pb.Spec(queue=QUEUE, kind="report", lock=f"{QUEUE}:db")

    error = error_of(await complete(worker, subject.token, fine, asked))

    assert error.kind == "Denied"
    assert error.message.startswith("follow_ups[1]: ")
    assert words in error.message
    assert "The job has not ended" in error.advice
    assert not (await keyed.registry.status(subject.job_id)).ended
    taken = await complete(worker, subject.token, fine)
    assert taken.answer is not None
    assert taken.answer.field == "job"


async def test_follow_ups_make_no_queue_longer_than_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_limit, "FRESH_SECONDS", 0.0)

    async with open_keyed_server() as here:
        here.server.app.context.queue_limit._most = 5  # as --queue-limit 5
        worker, subject = here.caller("work"), await here.subject("work", "running")
        spec = pb.Spec(queue="next", kind="report")

        refused = error_of(await complete(worker, subject.token, *[spec] * 6))
        assert refused.kind == "Exhausted"
        assert not (await here.registry.status(subject.job_id)).ended
        for _ in range(2):  # a repeat makes none, so it is let in
            taken = await complete(worker, subject.token, *[spec] * 5)
            assert taken.answer is not None
            assert taken.answer.field == "job", taken

        assert len((await here.registry.list_jobs(JobFilter(queue="next"))).jobs) == 5


async def test_the_promise_of_a_follow_up_is_of_the_store_that_the_server_has(
    keyed: KeyedServer,
) -> None:
    worker, subject = keyed.caller("work"), await keyed.subject("work", "running")
    outputs = await keyed.server.app.context.outputs.open()
    assert outputs is not None
    spec = pb.Spec(queue="next", kind="report", outputs=pb.OutputPromise(names=["table"]))

    await complete(worker, subject.token, spec)

    [made] = (await keyed.registry.list_jobs(JobFilter(queue="next"))).jobs
    assert made.spec.outputs == OutputPromise(names=("table",), store=outputs.store_id, place=outputs.place)
