"""A gRPC client without any code of ours: Google's, with messages made from the .proto files."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.rpc import status_pb2  # type: ignore[import-untyped]

from tests.server.programs import ROOT, program, store, until

JOBS, EVENTS, REGISTRY = (
    "job.v1.JobService",
    "job.v1.JobEventsService",
    "holdfast.v1.RegistryService",
)
SECONDS_MAX = 60.0
_FOUND = re.compile(r"^(https?://\S+) serves .*\ngRPC is served at (\S+)\.$", re.MULTILINE)


@cache
def pool() -> Any:  # noqa: ANN401
    """What proto/ says, as Google's library reads it."""
    buf = Path(sys.executable).with_name("buf")
    built = subprocess.run(
        [buf, "build", "-o", "-#format=binpb"], cwd=ROOT / "proto", capture_output=True, check=True
    )
    files = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(built.stdout).file:
        files.Add(file)
    return files


def message(name: str) -> Any:  # noqa: ANN401
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))


def methods(service_name: str) -> dict[str, Any]:
    found: dict[str, Any] = pool().FindServiceByName(service_name).methods_by_name
    return found


class GrpcClient:
    """One connection to a server, with the methods of its services."""

    def __init__(self, address: str, key: str = "", trusted: bytes | None = None) -> None:
        # Its room for what it has not read stays as it is: it does not grow with the speed of the machine.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
        self.channel = (
            grpc.insecure_channel(address, options)
            if trusted is None
            else grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options)
        )
        self.metadata = [("authorization", f"Bearer {key}")] if key else []

    def __enter__(self) -> "GrpcClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def ask(self, method: str, given: Any = None, *, service: str = JOBS, **how: Any) -> Any:  # noqa: ANN401
        """Call a method with the fields of its message, or with messages for those that take a stream."""
        found = methods(service)[method]
        asked, answered = (
            message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type)
        )
        takes = "stream" if found.client_streaming else "unary"
        gives = "stream" if found.server_streaming else "unary"
        call = getattr(self.channel, f"{takes}_{gives}")(
            f"/{service}/{method}",
            request_serializer=asked.SerializeToString,
            response_deserializer=answered.FromString,
        )
        fields = given or {}
        request = (asked(**one) for one in fields) if found.client_streaming else asked(**fields)
        metadata = [*self.metadata, *how.pop("metadata", ())]
        return call(request, metadata=metadata, **{"timeout": SECONDS_MAX, **how})

    def enqueue(self, **fields: Any) -> str:  # noqa: ANN401
        params = {"command": "echo", "args": ["hello"]}
        job_id: str = self.ask("EnqueueJob", {"job_params": params, **fields}).job_id
        return job_id

    def take(self, **fields: Any) -> list[Any]:  # noqa: ANN401
        return list(self.ask("DequeueJob", fields))

    def complete(self, token: str) -> None:
        self.ask("CompleteJob", {"task_token": token, "job_result": {"success": True}})


@contextmanager
def refused(code: grpc.StatusCode, *words: str) -> Iterator[list[Any]]:
    """Check that the call is refused with this code and a message with these words; yield its details."""
    details: list[Any] = []
    with pytest.raises(grpc.RpcError) as raised:
        yield details
    error: Any = raised.value
    assert error.code() is code, (error.code(), error.details())
    for word in words:
        assert word in error.details(), error.details()
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            details += status_pb2.Status.FromString(value).details


class GrpcServer(NamedTuple):
    """A server process, and its addresses."""

    process: "subprocess.Popen[bytes]"
    log: Path
    url: str
    grpc: str


@contextmanager
def grpc_server(folder: Path, *options: str) -> Iterator[GrpcServer]:
    """`holdfast serve --grpc` over a store in the folder. It must stop with exit code 0."""
    log = folder / "serve.log"
    places = ("--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", store(folder))
    with program(log, sys.executable, "-m", "holdfast", "serve", *places, *options) as process:

        def opened() -> tuple[str, str] | None:
            assert process.poll() is None, log.read_text()
            found = _FOUND.search(log.read_text())
            return (found[1], found[2]) if found else None

        yield GrpcServer(process, log, *until(opened, "a server"))
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0, log.read_text()


def events(count: int, size: int, first: int = 1) -> list[dict[str, Any]]:
    """Output of a worker."""
    kind = pool().FindEnumTypeByName("job.v1.EventType").values_by_name["EVENT_TYPE_OUTPUT"].number
    return [
        {"sequence": first + at, "event_type": kind, "output": {"output": b"x" * size}} for at in range(count)
    ]
