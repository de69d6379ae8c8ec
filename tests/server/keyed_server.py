"""A server with keys, and callers of every kind: for the tests of what each of them may do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import msgspec
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from msgspec import Struct, structs
from protobuf import Message
from protobuf.wkt import Timestamp

from holdfast.core.access import Principal, Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import Output, OutputPromise, ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.server.verbs.access import FEED, Cursors
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.testing.world import TRANSIENT
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import ConnectClient
from tests.server.running_server import RunningServer, no_expire_loop, outputs_in, serving

QUEUE, REGION = "work", "eu"
STRANGER = "zoe"
LAST_SEQUENCE = 9
"""The last sequence under which the worker publishes an event."""

WITH_OUTPUTS = ("validating", "partial")
"""States of jobs that have promised outputs."""

NAMES = ("curve", "table")
CANARIES = ("payload", "result", "output", "checkpoint")

Fields: TypeAlias = dict[str, Any]

ALL = tuple(Scope)
KNOWN: dict[str, Fields] = {
    "submit": {"scopes": (Scope.SUBMIT,)},
    "work": {"scopes": (Scope.WORK,)},
    "observe": {"scopes": (Scope.OBSERVE,)},
    "data": {"scopes": (Scope.OBSERVE, Scope.DATA)},
    "admin": {"scopes": (Scope.ADMIN,)},
    "keys": {"scopes": (Scope.KEYS,)},
    "elsewhere": {"scopes": ALL, "queues": ("other*",)},
    "abroad": {"scopes": ALL, "regions": ("us",)},
}
"""The keys that are valid, and their rights. The job of a call is in queue work and region eu."""

REFUSED = ("nobody", "unknown", "revoked", "expired")


def canary(what: str) -> str:
    """A text that must never reach a caller who may not read it."""
    return f"canary-in-{what}-5d1f"


PAYLOADS = {
    "report": f'{{"text": "{canary("payload")}"}}',
    "command": f'{{"argv": ["echo", "{canary("payload")}"]}}',
    "job.v1": f'{{"repository": "{canary("payload")}"}}',
}


def seen_in(raw: bytes) -> set[str]:
    """Return the canaries that are in these bytes."""
    return {what for what in CANARIES if canary(what).encode() in raw}


class Subject(Struct, frozen=True):
    """The job that a call is about, its lock, the task token of its holder, and the
    cursor of the feed before the job was made."""

    job_id: str = ""
    lock: str = ""
    token: str = ""
    cursor: str = ""
    key_id: str = ""


class CallOutcome(Struct, frozen=True):
    """The outcome of a call: `ok`, or the code of its refusal; and everything that came back."""

    outcome: str
    messages: tuple[Message, ...] = ()
    error: ConnectError | None = None

    @property
    def raw(self) -> bytes:
        """All bytes that came back, of responses and errors alike."""
        told = [message.to_binary() for message in self.messages]
        if self.error is not None:
            details = (one.value(pb.ErrorDetail) or pb.ErrorDetail() for one in self.error.details)
            told += [self.error.message.encode(), *(one.to_binary() for one in details)]
        return b"\n".join(told)


def refused(error: ConnectError) -> CallOutcome:
    return CallOutcome(error.code.value, error=error)


NOT_FOUND = Code.NOT_FOUND.value


class KeyedServer:
    """The server, the registry behind it, the keys, and jobs that are made for a call."""

    def __init__(self, registry: LocalRegistry, clock: ManualClock, server: RunningServer) -> None:
        self.registry = registry
        self.clock = clock
        self.server = server
        self.keys: dict[str, str | None] = {"nobody": None}

    def caller(self, name: str) -> ConnectClient:
        return ConnectClient(self.server.url, self.keys[name])

    async def make_keys(self) -> None:
        for name, fields in KNOWN.items():
            await self._key(name, fields)
        await self._key("expired", {"scopes": ALL, "life": timedelta(hours=1)})
        await self._key("revoked", {"scopes": ALL})
        text = self.keys["revoked"] or ""
        await self.registry.revoke_key(text, actor="user:root")
        self.keys["unknown"] = text[:20] + "A" * 39
        self.clock.advance(7200)

    async def _key(self, name: str, fields: Fields) -> None:
        _, text = await self.registry.create_key(name=name, actor="user:root", **fields)
        self.keys[name] = text

    async def subject(self, name: str, state: str, kind: str = "report") -> Subject:
        """Make a job in this state; `name` submitted it, and owns it."""
        if state == "key":
            key, _ = await self.registry.create_key(
                name=f"spare-{SystemIds().new()}", scopes=(Scope.SUBMIT,), actor="user:root"
            )
            return Subject(key_id=key.key_id)
        cursor = await self.registry.tail()
        job = await self._enqueue(name, state, kind)
        if state in ("queued", "registered"):
            return Subject(job.job_id, job.spec.lock or "", cursor=cursor)
        grant = await self.registry.acquire(job.job_id, owner="w-1")
        token = await self.registry.seal_task_token(grant, name)
        if state == "dead":
            await self.registry.complete(grant, TRANSIENT)
        else:
            await self._work(grant, ends=state in ("ended", *WITH_OUTPUTS))
        if state == "partial":
            await self._judge(job.job_id)
        return Subject(job.job_id, job.spec.lock or "", token, cursor)

    async def held_by(self, name: str, subject: Subject) -> Subject:
        """The subject as the caller `name` knows of it: with a cursor of its own."""
        fields = KNOWN.get(name)
        if fields is None or not subject.cursor:
            return subject
        who = Principal(
            name,
            frozenset(fields["scopes"]),
            fields.get("queues", ("*",)),
            fields.get("regions", ()),
            key_id="0" * 12,
        )
        cursor = await Cursors(self.registry).seal(who, FEED, subject.cursor)
        return structs.replace(subject, cursor=cursor)

    async def _enqueue(self, name: str, state: str, kind: str) -> Job:
        lock = SystemIds().new()
        spec = Spec(
            kind=kind,
            queue=QUEUE,
            region=REGION,
            lock=lock,
            labels={"lock": lock},
            payload=msgspec.Raw(PAYLOADS[kind].encode()),
            retry=Retry(max_failures=1),
            outputs=await self._promise() if state in WITH_OUTPUTS else None,
        )
        asked = JobRequest(spec=spec, submitted_by=f"key:{name}", register=state == "registered")
        return await self.registry.enqueue(asked, actor=f"user:{name}")

    async def _promise(self) -> OutputPromise:
        outputs = await self.server.app.context.outputs.open()
        return OutputPromise(names=NAMES, store=None if outputs is None else outputs.store_id)

    async def _judge(self, job_id: str) -> None:
        lack = Output(name=NAMES[1], missing="nobody wrote it")
        found = ValidationResult(verified=1, missing=1)
        await self.registry.complete_validation(job_id, found, actor="validator:v", evidence=[lack])

    async def _work(self, grant: Grant, *, ends: bool) -> None:
        await self.registry.heartbeat(grant, checkpoint={"at": canary("checkpoint")})
        await self.registry.publish(grant, worker_events(await self.registry.now()))
        if ends:
            await self.registry.complete(grant, Success(result={"sum": canary("result")}))

    async def free(self, subject: Subject) -> None:
        """End the job, so that its lock is free."""
        if subject.job_id:
            job = await self.registry.status(subject.job_id)
            if job.state is State.VALIDATING:
                found = ValidationResult(verified=len(NAMES))
                await self.registry.complete_validation(subject.job_id, found, actor="validator:v")
            elif not job.ended:
                await self.registry.cancel(subject.job_id, actor="user:root", hard=True)


def worker_events(now: datetime) -> list[Event]:
    """Return an event of every type in which a worker can publish a text of its own."""
    text = canary("output")
    told: list[tuple[str, Fields]] = [
        (WorkerEventType.PROCESS_START, {"attributes": {"pid": 7}}),
        (WorkerEventType.OUTPUT, {"stream": "stdout", "data": text.encode()}),
        (WorkerEventType.PROCESS_ERROR, {"attributes": {"error_message": text}}),
        (WorkerEventType.GIT_CLONE_ERROR, {"attributes": {"stderr_output": text}}),
        (WorkerEventType.GIT_CLONE_START, {"attributes": {"repository": text}}),
        (WorkerEventType.CONTAINER_CREATE, {"attributes": {"image": text}}),
        (WorkerEventType.IMAGE_PULL_PROGRESS, {"attributes": {"status": text}}),
        (WorkerEventType.CUSTOM, {"attributes": {"words": text}}),
        (WorkerEventType.PROCESS_END, {"attributes": {"exit_code": 3}}),
    ]
    return [
        Event(kind, EventClass.WORKER, now, sequence=number, **fields)
        for number, (kind, fields) in enumerate(told, 1)
    ]


def fact(job_id: str | None) -> pb.Event:
    """Return an event that happened elsewhere."""
    return pb.Event(
        event_type="invoice_sent",
        event_class="external",
        occurred_at=Timestamp(seconds=1),
        given_id=SystemIds().new(),
        job_id=job_id,
    )


@asynccontextmanager
async def open_keyed_server() -> AsyncIterator[KeyedServer]:
    """A server that asks for keys, over a store in memory whose time stands still."""
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    settings = ServerSettings(keys=True, poll_seconds=0.0)
    with TemporaryDirectory() as folder, no_expire_loop():
        async with serving(registry, settings, outputs_in(Path(folder))) as served:
            made = KeyedServer(registry, clock, served)
            await made.make_keys()
            yield made
    await registry.close()


async def key(keyed: KeyedServer, name: str, *scopes: Scope, **more: Any) -> ConnectClient:  # noqa: ANN401
    """Return a client with a new key."""
    made = await keyed.registry.create_key(name=name, scopes=scopes, actor="user:root", **more)
    return ConnectClient(keyed.server.url, made[1])


async def update(caller: ConnectClient, token: str) -> old.UpdateJobResponse:
    return await caller.jobs.update_job(old.UpdateJobRequest(task_token=token))


async def count(caller: ConnectClient) -> object:
    return await caller.registry.counts(pb.CountsRequest())


async def create(caller: ConnectClient, **fields: Any) -> pb.CreateKeyResponse:  # noqa: ANN401
    asked = pb.CreateKeyRequest(**fields)
    return await caller.registry.create_key(asked)
