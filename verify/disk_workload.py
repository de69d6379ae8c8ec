"""Every verb of the registry, on one store, by a client that records every response.

Each step runs under an op_id of its own, so that a look at the store says which steps it holds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import msgspec

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import HandoffStep, Success
from holdfast.core.outputs import Output, OutputPromise, ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from verify.disk_verdict import (
    ENQUEUED,
    FACTS,
    OLD_JOBS,
    REPLAY,
    RESUMED,
    STEPS,
    differences,
    holds,
)

T = TypeVar("T")

STEP_SECONDS = 10.0
JOBS = (*ENQUEUED, "acquired", REPLAY, RESUMED)
"""All that are left at the end."""
RETRY = Retry(max_failures=5, backoff=timedelta(0))
SPEC = Spec(retry=RETRY)
LARGE = Spec(retry=RETRY, payload=msgspec.Raw(b'"' + b"x" * 6_000 + b'"'))
"""A job of more than a page."""
PROMISE = OutputPromise(names=("model", "curve"), store="s-1")
REQUESTS = {
    **{job_id: JobRequest(spec=LARGE, job_id=job_id) for job_id in ("old", "first", "second", "third")},
    "handed": JobRequest(spec=Spec(queue="outside"), job_id="handed", register=True),
    "mortal": JobRequest(spec=Spec(queue="outside", ttl=timedelta(microseconds=1)), job_id="mortal"),
    "acquired": JobRequest(spec=Spec(queue="outside", lock="disk"), job_id="acquired"),
    "promised": JobRequest(spec=Spec(queue="outside", outputs=PROMISE), job_id="promised"),
}
VALIDATOR = "validator:v-1"
TRANSIENT = Failure(message="the network hiccuped", code="TransientError")


@contextmanager
def small() -> Iterator[None]:
    """Checkpoint often, keep few pages and prune job by job: a short run has every kind of file call."""
    with (
        patch("holdfast.stores.sqlite.connection.CHECKPOINT_PAGES", 40),
        patch("holdfast.stores.sqlite.connection.CACHE_KIBIBYTES", 64),
        patch("holdfast.registry.prune.BATCH_ITEMS_MAX", 1),
    ):
        yield


class Workload:
    """The steps, what was answered to each (`acknowledged`, `no`, `unknown`), and what went wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, str] = {}
        self.troubles: list[str] = []
        self.messages: set[str] = set()
        self.registry: LocalRegistry | None = None
        self.told: Callable[[str, str], None] | None = None
        self._grants: dict[str, list[Grant]] = {}
        self._keys = 0
        self._key_id = ""

    async def open(self) -> None:
        if self.registry is None:
            self.registry = await self._ask("open", lambda: open_local(f"sqlite:///{self.path}"))

    async def run(self) -> None:
        """Do what has not been acknowledged yet, as far as what it builds on has."""
        await self.open()
        if self.registry is None:
            return
        registry = self.registry
        await self._step("enqueue-old", lambda: self._enqueue(*OLD_JOBS))
        await self._step("cancel-older", lambda: self._cancel("older"), after="enqueue-old")
        await self._step("cancel-old", lambda: self._cancel("old"), after="cancel-older")
        await self._step("prune", lambda: registry.prune(older_than=timedelta(0)), after="cancel-old")
        await self._step("enqueue", lambda: self._enqueue(*ENQUEUED), after="prune")
        await self._step("expire", self._expire, after="enqueue")
        await self._step("claim", lambda: self._claim("claim", 4), after="expire")
        await self._step("heartbeat", self._heartbeat, after="claim")
        await self._step("publish", self._publish, after="claim")
        await self._step("refuse", self._refuse, after="claim")
        await self._step("complete", self._complete, after="claim")
        await self._step("retry", self._retry, after="claim")
        await self._step("cancel-last", lambda: self._cancel("last"), after="enqueue")
        await self._step("replay", self._replay, after="cancel-last")
        await self._step("handoff-begin", lambda: self._handoff("begin"), after="enqueue")
        await self._step("handoff-done", lambda: self._handoff("done"), after="handoff-begin")
        await self._step("record", self._record, after="enqueue")
        await self._step("acquire", lambda: self._acquire("acquired", "acquire"), after="enqueue")
        await self._step("aggregate", self._aggregate, after="acquire")
        await self._step("claim-again", lambda: self._claim("claim-again", 1), after="retry")
        await self._step("release", self._release, after="aggregate")
        await self._step(
            "acquire-promised",
            lambda: self._acquire("promised", "acquire-promised"),
            after="enqueue",
        )
        await self._step("complete-promised", self._finish, after="acquire-promised")
        await self._step("look", self._look, after="complete-promised")
        await self._step("judge", self._judge, after="look")
        await self._step("resume", self._resume, after="judge")
        await self._step("create-key", self._create_key, after="enqueue")
        await self._step("revoke-key", self._revoke_key, after="create-key")
        if self.acknowledged(STEPS):
            await self._step("read", self._read)
            await self._step("watch", self._watch)

    def acknowledged(self, steps: Sequence[str]) -> bool:
        return all(self.answers.get(step) == "acknowledged" for step in steps)

    async def close(self) -> None:
        if self.registry is not None:
            registry, self.registry = self.registry, None
            await self._ask("close", registry.close)

    async def _step(self, name: str, call: Callable[[], Awaitable[object]], after: str | None = None) -> None:
        ready = after is None or self.answers.get(after) == "acknowledged"
        if ready and self.answers.get(name) != "acknowledged":
            await self._ask(name, call)

    async def _ask(self, name: str, call: Callable[[], Awaitable[T]]) -> T | None:
        answer: T | None = None
        if self.told:
            self.told(name, "unknown")
        try:
            async with asyncio.timeout(STEP_SECONDS):
                answer = await call()
        except Unavailable as error:
            self.answers[name] = error.applied
            self.messages.add(error.message.replace(str(self.path), "PATH"))
        except TimeoutError:
            self.answers[name] = "unknown"
            self.troubles.append(f"{name} hung for {STEP_SECONDS:.0f} s")
        except HoldfastError as error:
            self.answers[name] = "no"
            if not (name == "open" and isinstance(error, Invalid)):
                self.troubles.append(f"{name} raised {type(error).__name__}: {error.message}")
        except Exception as error:
            self.answers[name] = "unknown"
            self.troubles.append(f"{name} let out {error!r}")
        else:
            self.answers[name] = "acknowledged"
        if self.told:
            self.told(name, self.answers[name])
        return answer

    @property
    def _open_registry(self) -> LocalRegistry:
        assert self.registry is not None
        return self.registry

    async def _enqueue(self, *job_ids: str) -> None:
        requests = [REQUESTS.get(i) or JobRequest(spec=SPEC, job_id=i) for i in job_ids]
        await self._open_registry.enqueue_many(requests, actor="user:ana")

    async def _cancel(self, job_id: str) -> None:
        await self._open_registry.cancel(job_id, actor="user:ana", op_id=f"cancel-{job_id}")

    async def _expire(self) -> None:
        """Look at once whether it did its work: a later claim would do it on the way."""
        changed = await self._open_registry.expire()
        if changed != 1 and self.answers.get("expire") != "unknown":
            self.troubles.append(f"expire changed {changed} jobs, not 1")

    async def _claim(self, op_id: str, limit: int) -> None:
        self._grants[op_id] = await self._open_registry.claim(
            ["default"], owner="w-1", limit=limit, op_id=op_id
        )
        if len(self._grants[op_id]) != limit:
            self.troubles.append(f"{op_id} got {len(self._grants[op_id])} grants of {limit}")

    async def _heartbeat(self) -> None:
        await self._open_registry.heartbeat(self._grants["claim"][0], checkpoint="heartbeat")

    async def _publish(self) -> None:
        now = await self._open_registry.now()
        events = [_output(n, now) for n in (1, 2, 3)]
        await self._open_registry.publish(self._grants["claim"][0], events)

    async def _refuse(self) -> None:
        await self._open_registry.refuse_publish(self._grants["claim"][0], "An event is too large.")

    async def _complete(self) -> None:
        await self._open_registry.complete(
            self._grants["claim"][1], Success(result={"said": "x" * 5_000}), op_id="complete"
        )

    async def _retry(self) -> None:
        done = Completion(self._grants["claim"][2], TRANSIENT, op_id="retry")
        [answer] = await self._open_registry.complete_many([done])
        if isinstance(answer, HoldfastError):
            raise answer

    async def _replay(self) -> None:
        await self._open_registry.replay("last", actor="user:ana", replay_id="replay")

    async def _handoff(self, step: str) -> None:
        await self._open_registry.handoff(
            "handed", HandoffStep(step), actor="system:sync", op_id=f"handoff-{step}"
        )

    async def _record(self) -> None:
        now = await self._open_registry.now()
        await self._open_registry.record(
            [_fact(FACTS[0], now, job_id="first"), _fact(FACTS[1], now, job_id=None)]
        )

    async def _acquire(self, job_id: str, op_id: str) -> None:
        grant = await self._open_registry.acquire(job_id, owner="w-2", op_id=op_id, create=REQUESTS[job_id])
        self._grants[op_id] = [grant]

    async def _aggregate(self) -> None:
        await self._open_registry.aggregate(self._grants["acquire"][0], op_id="aggregate")

    async def _release(self) -> None:
        await self._open_registry.release(self._grants["acquire"][0], op_id="release")

    async def _finish(self) -> None:
        [grant] = self._grants["acquire-promised"]
        done = Success(where="box-1:/data")
        await self._open_registry.complete(grant, done, op_id="complete-promised")

    async def _look(self) -> None:
        await self._open_registry.report_validation("promised", actor=VALIDATOR, done=1, total=2)

    async def _judge(self) -> None:
        found = ValidationResult(verified=1, missing=1, names=("curve",))
        evidence = [Output(name="curve", missing="x" * 4_000)]
        await self._open_registry.complete_validation(
            "promised", found, actor=VALIDATOR, op_id="judge", evidence=evidence
        )

    async def _resume(self) -> None:
        lacking = OutputPromise(names=("curve",), store="s-1")
        await self._open_registry.resume("promised", lacking, actor="user:ana", resume_id="resume")

    async def _create_key(self) -> None:
        self._keys += 1
        key, _ = await self._open_registry.create_key(
            name=f"disk-{self._keys}", scopes=[Scope.WORK], actor="user:ana"
        )
        self._key_id = key.key_id

    async def _revoke_key(self) -> None:
        await self._open_registry.revoke_key(self._key_id, actor="user:ana")

    async def _read(self) -> None:
        """Every look at the store is right, or refused."""
        registry, [grant] = self._open_registry, self._grants["acquire"]
        self.troubles += differences(self.answers, await holds(registry))
        told = await registry.unseal_task_token(await registry.seal_task_token(grant))
        log = (await registry.logs("second", output=False)).events
        looks = {
            "get": (await registry.status("second")).state is State.SUCCEEDED,
            "get_many": await registry.status_many(["second", "none"])
            == [await registry.wait("second", timeout=1), None],
            "enqueue": (await registry.enqueue(JobRequest(spec=SPEC, job_id="last"), actor="user:ana"))
            == await registry.status("last"),
            "counts": sum((await registry.counts()).values()) == len(JOBS),
            "census": {SPEC.queue: await registry.counts(SPEC.queue)}.items()
            <= (await registry.census(10)).queues.items(),
            "resource": (await registry.locks("disk")).token == grant.fencing_token,
            "cursor": await registry.unseal_cursor(
                await registry.seal_cursor("7", holder="ana"), holder="ana"
            )
            == "7",
            "task_token": told.fencing_token == grant.fencing_token,
            "history": await registry.history("second") == list(log),
            "history_page": (await registry.history_page("second")).events == log,
            "replays": len(await registry.replays(["last"])) == 1,
            "tail": (await registry.events(after=await registry.tail())).events == (),
            "keys": self._key_id in {key.key_id for key in await registry.list_keys()},
            "workers": (await registry.announce("w", instance="1", queues=["mail"])).worker
            == (await registry.workers("mail"))[0],
            "queues": {SPEC.queue, "mail"} <= {one.queue for one in await registry.queues()},
            "why": "succeeded" in await registry.why("second"),
            "examine": (await registry.doctor())[0].topic == "store",
            "verify": (await registry.verify()).jobs == len(JOBS),
        }
        self.troubles += [f"{look} shows what is not so" for look, right in looks.items() if not right]

    async def _watch(self) -> None:
        """A job that has ended is followed to its end."""
        followed = [event async for event in self._open_registry.watch("second")]
        if followed != list((await self._open_registry.logs("second")).events):
            self.troubles.append("watch and log differ")


def _output(sequence: int, now: datetime) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=now,
        sequence=sequence,
        stream="stdout",
        data=b"publish " * 500,
    )


def _fact(event_id: str, now: datetime, *, job_id: str | None) -> Event:
    return Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=now,
        given_id=event_id,
        job_id=job_id,
    )
