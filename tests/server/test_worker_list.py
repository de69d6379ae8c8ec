"""Workers at a server: what a key that is limited to some queues learns of them, in lists and in `why`."""

import pytest
from connectrpc.code import Code

from holdfast.core.access import Scope
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.connect_client import ConnectClient, refusal_code
from tests.server.keyed_server import KeyedServer, key

EVERYTHING = tuple(Scope)


async def announced(keyed: KeyedServer) -> None:
    """A worker that serves both queues, one that serves the near one, and one that serves the far one."""
    registry = keyed.registry
    for name, queues in (("both", ["near", "far"]), ("near", ["near"]), ("far", ["far"])):
        kinds = [f"{name}-kind"]
        await registry.announce(
            name, instance="1", queues=queues, kinds=kinds, host="secret-host", pid=7, app="secret:app"
        )


async def listed(caller: ConnectClient, queue: str | None = None) -> dict[str, pb.Worker]:
    answer = await caller.registry.workers(pb.WorkersRequest(queue=queue))
    return {worker.name: worker for worker in answer.workers}


async def test_a_key_sees_the_workers_of_its_queues_and_no_code_of_others(keyed: KeyedServer) -> None:
    await announced(keyed)
    limited = await key(keyed, "limited", *EVERYTHING, queues=("near",))
    free = await key(keyed, "free", *EVERYTHING)

    seen, everything = await listed(limited), await listed(free)

    assert set(everything) == {"both", "near", "far"}
    assert set(seen) == {"both", "near"}
    assert set(await listed(limited, "far")) == set()
    assert (seen["near"].kinds, seen["near"].host, seen["near"].pid) == (["near-kind"], "secret-host", 7)
    mixed = seen["both"]
    assert (mixed.queues, mixed.kinds, mixed.host, mixed.pid, mixed.app) == (["near"], [], "", 0, "")


async def test_a_key_sees_its_queues(keyed: KeyedServer) -> None:
    await announced(keyed)
    limited = await key(keyed, "limited", *EVERYTHING, queues=("near",))
    abroad = await key(keyed, "abroad-2", *EVERYTHING, regions=("us",))

    answer = await limited.registry.queues(pb.QueuesRequest())

    assert {queue.queue: queue.workers for queue in answer.queues} == {"near": ["both", "near"]}
    assert await refusal_code(abroad.registry.queues(pb.QueuesRequest())) is Code.PERMISSION_DENIED


async def test_a_worker_is_listed_under_the_name_of_its_key_and_cannot_serve_other_queues(
    keyed: KeyedServer,
) -> None:
    limited = await key(keyed, "limited", *EVERYTHING, queues=("near",))

    def ask(*queues: str, instance: str = "1") -> pb.AnnounceRequest:
        return pb.AnnounceRequest(name="w-1", instance=instance, queues=list(queues))

    first = await limited.registry.announce(ask("near"))
    second = await limited.registry.announce(ask("near", instance="2"))
    refused = await refusal_code(limited.registry.announce(ask("near", "far")))

    assert first.worker is not None
    assert (first.worker.name, first.namesakes) == ("w-1@limited", [])
    assert [(one.name, one.instance) for one in second.namesakes] == [("w-1@limited", "1")]
    assert refused is Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("scopes", "queues", "told", "hidden"),
    [
        (EVERYTHING, ("*",), "Did you mean queue far? both, far serve it.", "another"),
        (EVERYTHING, ("near", "farr"), "No known worker serves queue farr", "mean"),
        ((Scope.SUBMIT,), ("farr", "far"), "Did you mean queue far? 2 workers serve it.", "both"),
    ],
)
async def test_why_names_no_queue_and_no_worker_that_the_caller_may_not_know(
    keyed: KeyedServer, scopes: tuple[Scope, ...], queues: tuple[str, ...], told: str, hidden: str
) -> None:
    await announced(keyed)
    request = JobRequest(spec=Spec(queue="farr"), job_id="lost", submitted_by="key:asking")
    await keyed.registry.enqueue(request, actor="user:root")
    asking = await key(keyed, "asking", *scopes, queues=list(queues))

    why = await asking.registry.why(pb.WhyRequest(job_id="lost"))

    assert told in why.text
    assert hidden not in why.text
