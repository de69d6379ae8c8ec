"""gRPC: Google's own client gets from `serve --grpc` what clients of Connect get, by the same rules."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from tests.server.grpc_client import (
    EVENTS,
    JOBS,
    REGISTRY,
    GrpcClient,
    GrpcServer,
    events,
    grpc_server,
    message,
    methods,
    pool,
    refused,
)
from tests.server.programs import key

ALL = "submit,work,observe,observe:data,admin"
MEGABYTE = 1024 * 1024


class KeyedGrpcServer:
    """One server with keys, for all of these tests."""

    def __init__(self, server: GrpcServer, key: str, watcher: str) -> None:
        self.server = server
        self.key = key
        self.watcher = watcher

    def client(self, key: str | None = None, **how: Any) -> GrpcClient:  # noqa: ANN401
        return GrpcClient(self.server.grpc, self.key if key is None else key, **how)


@pytest.fixture(scope="module")
def keyed_grpc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedGrpcServer]:
    folder = tmp_path_factory.mktemp("grpc")
    keys = key(folder, ALL), key(folder, "observe")
    with grpc_server(folder, "--keys", "--poll", "200ms") as server:
        yield KeyedGrpcServer(server, *keys)
        said = server.log.read_text()
    assert "failed" not in said
    assert "Traceback" not in said


def test_a_job_lives_by_calls_of_every_shape(keyed_grpc: KeyedGrpcServer) -> None:
    with keyed_grpc.client() as client:
        job_id = client.enqueue(queue="life")
        [taken] = client.take(queue="life")
        token = taken.task_token
        batches = [{"task_token": token, "events": events(2, 10, first)} for first in (1, 3)]
        client.ask("PublishJobEvents", batches, service=EVENTS)
        client.ask("UpdateJob", {"task_token": token})
        reading = client.ask("StreamJobEvents", {"job_id": job_id}, service=EVENTS)
        heard = [next(reading).event.sequence for _ in range(4)]
        client.complete(token)

        assert taken.job.job_id == job_id
        assert heard == [1, 2, 3, 4]
        assert list(reading) == []
        assert state(client, job_id) == "JOB_STATE_COMPLETED"


def test_an_end_said_again_is_answered_as_before_and_another_one_is_refused(
    keyed_grpc: KeyedGrpcServer,
) -> None:
    with keyed_grpc.client() as client:
        job_id = client.enqueue(queue="again")
        [taken] = client.take(queue="again")
        client.complete(taken.task_token)
        client.complete(taken.task_token)
        failed = {"task_token": taken.task_token, "job_result": {"exit_code": 3}}

        with refused(StatusCode.NOT_FOUND, "You have already completed it"):
            client.ask("CompleteJob", failed)

        ended = {"task_token": taken.task_token, "success": {"result": '{"exit_code":0}'}}
        [told] = client.ask("Complete", {"completions": [ended]}, service=REGISTRY).answers
        assert (told.job.job_id, told.job.state) == (job_id, "succeeded")


def state(client: GrpcClient, job_id: str) -> str:
    number = client.ask("GetJob", {"job_id": job_id}).job.state
    name: str = pool().FindEnumTypeByName("job.v1.JobState").values_by_number[number].name
    return name


def test_no_method_is_out_of_reach_and_none_lets_strangers_in(keyed_grpc: KeyedGrpcServer) -> None:
    for wrong in ("", "hf_000000000000_wrong"):
        with keyed_grpc.client(wrong) as stranger:
            for service in (JOBS, EVENTS, REGISTRY):
                for name in methods(service):
                    with refused(StatusCode.UNAUTHENTICATED, "holdfast keys create"):
                        answer = stranger.ask(name, service=service)
                        next(answer) if methods(service)[name].server_streaming else None


@pytest.mark.parametrize(
    ("method", "given", "code"),
    [
        ("EnqueueJob", {}, StatusCode.INVALID_ARGUMENT),
        ("GetJob", {"job_id": "no such job"}, StatusCode.INVALID_ARGUMENT),
        ("UpdateJob", {"task_token": "ümläut 💥 %41"}, StatusCode.NOT_FOUND),
        ("CompleteJob", {"task_token": "x"}, StatusCode.NOT_FOUND),
    ],
)
def test_an_error_says_what_it_says_by_connect(
    keyed_grpc: KeyedGrpcServer, method: str, given: dict[str, Any], code: StatusCode
) -> None:
    by_connect = connect_error(keyed_grpc, method, given)

    with keyed_grpc.client() as client, refused(code, by_connect["message"]) as details:
        client.ask(method, given)

    assert code.value[1].replace(" ", "_") == by_connect["code"]
    [detail] = details
    assert detail.TypeName() == "holdfast.v1.ErrorDetail"
    assert message(detail.TypeName()).FromString(detail.value).message == by_connect["message"]


def connect_error(keyed_grpc: KeyedGrpcServer, method: str, given: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{keyed_grpc.server.url}/{JOBS}/{method}",
        json.dumps(given).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {keyed_grpc.key}"},
    )
    with pytest.raises(urllib.error.HTTPError) as raised, urllib.request.urlopen(request):
        pass
    with raised.value as answer:
        said: dict[str, Any] = json.load(answer)
    return said


def test_a_key_reaches_no_further_than_by_connect(keyed_grpc: KeyedGrpcServer) -> None:
    with keyed_grpc.client(keyed_grpc.watcher) as watcher:
        with refused(StatusCode.PERMISSION_DENIED):
            watcher.enqueue()
        with refused(StatusCode.PERMISSION_DENIED):
            watcher.take()


def test_who_waits_and_leaves_holds_nothing(keyed_grpc: KeyedGrpcServer) -> None:
    with keyed_grpc.client() as client:
        for how in ("cancels", "hangs up", "runs out of time") * 3:
            with keyed_grpc.client() as other:
                limit = 0.05 if how == "runs out of time" else 30.0
                waiting = other.ask("DequeueJob", {"queue": "left"}, timeout=limit)
                time.sleep(0.02)  # so that most are there when they leave
                if how == "cancels":
                    waiting.cancel()
                if how == "hangs up":
                    other.channel.close()
                with pytest.raises(grpc.RpcError) as raised:
                    next(waiting)
            if how == "runs out of time":
                assert raised.value.code() is StatusCode.DEADLINE_EXCEEDED
            job_id = client.enqueue(queue="left")
            [taken] = client.take(queue="left")
            assert taken.job.job_id == job_id
            client.complete(taken.task_token)


def test_a_stream_whose_reader_leaves_is_given_up(keyed_grpc: KeyedGrpcServer) -> None:
    with keyed_grpc.client() as client:
        job_id = client.enqueue(queue="read")
        for _ in range(30):  # three times as many as may read at once
            reading = client.ask("StreamJobEvents", {"job_id": job_id}, service=EVENTS)
            with refused(StatusCode.DEADLINE_EXCEEDED):
                next(client.ask("StreamJobEvents", {"job_id": job_id}, service=EVENTS, timeout=0.02))
            reading.cancel()


def test_what_is_too_large_is_refused(keyed_grpc: KeyedGrpcServer) -> None:
    large = {"job_params": {"command": "echo", "args": ["x" * MEGABYTE]}}
    wide = [("x-wide", "x" * 17 * 1024)]
    with keyed_grpc.client() as client:
        with refused(StatusCode.RESOURCE_EXHAUSTED, "larger than max"):
            client.ask("EnqueueJob", large)
        with refused(StatusCode.RESOURCE_EXHAUSTED, "metadata"):
            client.ask("ListJobs", metadata=wide)
        with refused(StatusCode.RESOURCE_EXHAUSTED, "larger than max"):
            client.ask("EnqueueJob", large, compression=grpc.Compression.Gzip)

        small = {"queue": "after", "job_params": {"command": "echo", "args": ["x" * 10_000]}}
        assert client.ask("EnqueueJob", small, compression=grpc.Compression.Gzip).job_id


@pytest.mark.parametrize(
    "path",
    [
        "/job.v1.JobService/Nope",
        "/job.v1.Nope/GetJob",
        "/health",
        "/metrics",
        "/",
    ],
)
def test_there_is_nothing_but_methods(keyed_grpc: KeyedGrpcServer, path: str) -> None:
    with keyed_grpc.client() as client:
        call: Any = client.channel.unary_unary(path)
        with refused(StatusCode.UNIMPLEMENTED):
            call(b"", timeout=30)


def test_no_path_of_rest_is_a_method(keyed_grpc: KeyedGrpcServer) -> None:
    with keyed_grpc.client() as client:
        job_id = client.enqueue(queue="rest")
        call: Any = client.channel.stream_unary(f"/v1/jobs/{job_id}/cancel")
        with refused(StatusCode.UNIMPLEMENTED):
            call(iter(()), metadata=client.metadata, timeout=30)

        assert state(client, job_id) == "JOB_STATE_SCHEDULED"


def test_nonsense_is_refused_with_words(keyed_grpc: KeyedGrpcServer) -> None:
    with keyed_grpc.client() as client:
        call: Any = client.channel.unary_unary(f"/{JOBS}/EnqueueJob")
        with refused(StatusCode.INVALID_ARGUMENT, "The request is not a valid job.v1."):
            call(b"\xff\xff", metadata=client.metadata, timeout=30)


def test_the_other_address_says_where_grpc_is(keyed_grpc: KeyedGrpcServer) -> None:
    request = urllib.request.Request(
        f"{keyed_grpc.server.url}/{JOBS}/GetJob", b"", {"content-type": "application/grpc"}
    )
    with pytest.raises(urllib.error.HTTPError) as raised, urllib.request.urlopen(request):
        pass
    with raised.value as answer:
        assert answer.code == 415
        assert b"--grpc HOST:PORT" in answer.read()
