"""The table of access: every method, by callers of every kind, about their own jobs and those of others. A
method that is not in the table fails (invariants I31 and I32)."""

import logging
from itertools import product

import pytest

from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryService
from holdfast.wire.generated.job.v1.job_connect import JobEventsService, JobService
from tests.server.access_calls import METHOD_CALLS, ask
from tests.server.keyed_server import (
    KNOWN,
    PAYLOADS,
    REFUSED,
    STRANGER,
    KeyedServer,
    open_keyed_server,
    seen_in,
)

SERVICES = (JobService, JobEventsService, RegistryService)

WORDS = {"+": "ok", "-": "permission_denied", "0": "not_found"}

TABLE = """
                                            submit work observe data admin keys elsewhere abroad
JobService.EnqueueJob                          +    -      -     -     -    -      -        +
JobService.DequeueJob                          -    +      -     -     -    -      -        -
JobService.DequeueJob of any region            -    +      -     -     -    -      -        0
JobService.UpdateJob                           -    +0     -     -     -    -      0        0
JobService.CompleteJob                         -    +0     -     -     -    -      0        0
JobService.ListJobs                            -    -      +     +     +    -      -        -
JobService.GetJob                              +0   +      +     +     +    0      0        0
JobService.CancelJob                           +0   -      -     -     +    0      0        0
JobEventsService.StreamJobEvents               +0   +      +     +     +    0      0        0
JobEventsService.PublishJobEvents              -    +0     -     -     -    -      0        0
RegistryService.Enqueue                        +    -      -     -     -    -      -        -
RegistryService.Handoff                        +0   -      -     -     +    0      0        0
RegistryService.Replay                         -    -      -     -     +    -      0        0
RegistryService.Claim                          -    +      -     -     -    -      -        -
RegistryService.Claim of any region            -    +      -     -     -    -      -        0
RegistryService.Acquire                        -    +      -     -     -    -      0        0
RegistryService.Heartbeat                      -    +0     -     -     -    -      0        0
RegistryService.Publish                        -    +0     -     -     -    -      0        0
RegistryService.Aggregate                      -    +0     -     -     -    -      0        0
RegistryService.Complete                       -    +0     -     -     -    -      0        0
RegistryService.Release                        -    +0     -     -     -    -      0        0
RegistryService.Cancel                         +0   -      -     -     +    0      0        0
RegistryService.ReportValidation               -    +      -     -     -    -      0        0
RegistryService.CompleteValidation             -    +      -     -     -    -      0        0
RegistryService.CompleteValidation overriding  -    -      -     -     +    -      0        0
RegistryService.ListOutputs                    +0   -      -     +     +    0      0        0
RegistryService.Validate                       +0   +      -     -     +    0      0        0
RegistryService.Resume                         +0   -      -     -     +    0      0        0
RegistryService.Resume as told                 +0   -      -     -     +    0      0        0
RegistryService.StoreManifest                  +    -      -     -     -    -      +        +
RegistryService.Status                         +0   +      +     +     +    0      0        0
RegistryService.ListJobs                       +0   +      +     +     +    -      0        0
RegistryService.Counts                         -    -      +     +     +    -      -        -
RegistryService.Counts of all                  -    -      +     +     +    -      -        -
RegistryService.Why                            +0   +      +     +     +    0      0        0
RegistryService.History                        +0   +      +     +     +    0      0        0
RegistryService.Logs                           +0   +      +     +     +    0      0        0
RegistryService.Events                         -    -      +     +     +    -      0        0
RegistryService.Tail                           -    -      +     +     +    -      +        +
RegistryService.Watch                          +0   +      +     +     +    0      0        0
RegistryService.Watch of all                   -    -      +     +     +    -      0        0
RegistryService.Locks                          -    +      +     +     +    -      0        0
RegistryService.Announce                       -    +      -     -     -    -      -        -
RegistryService.Workers                        -    +      +     +     +    -      +        +
RegistryService.Queues                         -    -      +     +     +    -      +        -
RegistryService.Changes                        +0   +      +     +     +    0      0        0
RegistryService.Changes of all                 +    +      +     +     +    +      +        +
RegistryService.Changes for a claim            -    +      -     -     -    -      -        -
RegistryService.Record                         +0   +      -     -     +    -      0        0
RegistryService.Record about no job            +    +      -     -     +    -      +        +
RegistryService.Expire                         -    +      -     -     +    -      +        +
RegistryService.Prune                          -    -      -     -     +    -      -        -
RegistryService.Verify                         -    -      -     -     +    -      -        -
RegistryService.Doctor                         -    -      -     -     +    -      -        -
RegistryService.Now                            +    +      +     +     +    +      +        +
RegistryService.CreateKey                      -    -      -     -     -    +      -        +
RegistryService.ListKeys                       -    -      -     -     -    +      -        -
RegistryService.RevokeKey                      -    -      -     -     -    +      -        -
"""
"""One cell for own and others' alike, or one for each. `0`: as if there were no such job."""


def rows() -> dict[str, dict[str, tuple[str, str]]]:
    """What is expected: by method, by caller, about an own and about another's job."""
    head, *lines = TABLE.strip().splitlines()
    callers = head.split()
    assert callers == list(KNOWN)
    found = {}
    for line in lines:
        words = line.split()
        name, cells = " ".join(words[: -len(callers)]), words[-len(callers) :]
        found[name] = {
            caller: (WORDS[cell[0]], WORDS[cell[-1]]) for caller, cell in zip(callers, cells, strict=True)
        }
    return found


def test_the_table_has_every_method_of_every_service() -> None:
    there = {
        f"{service.desc().name}.{method.name}" for service in SERVICES for method in service.desc().methods
    }

    assert {name.partition(" ")[0] for name in rows()} == there
    assert set(METHOD_CALLS) == set(rows())


@pytest.mark.parametrize("name", rows())
async def test_every_caller_gets_what_the_table_says(name: str) -> None:
    """I32."""
    way, expected = METHOD_CALLS[name], rows()[name]
    found: dict[str, tuple[str, str]] = {}

    async def outcome(here: KeyedServer, caller: str, owner: str) -> str:
        subject = await here.held_by(caller, await here.subject(owner, way.state, way.kind))
        answered = await ask(way, here.caller(caller), subject)
        await here.free(subject)
        return answered.outcome

    async with open_keyed_server() as here:
        for caller in KNOWN:
            found[caller] = (
                await outcome(here, caller, caller),
                await outcome(here, caller, STRANGER),
            )
        for caller in REFUSED:
            assert await outcome(here, caller, caller) == "unauthenticated", caller

    assert found == expected


SHOWN = {
    "JobService.DequeueJob": "payload",
    "JobService.DequeueJob of any region": "payload",
    "JobService.ListJobs": "payload",
    "JobService.GetJob": "payload",
    "JobService.CancelJob": "payload",
    "JobEventsService.StreamJobEvents": "output",
    "RegistryService.Handoff": "payload",
    "RegistryService.Replay": "payload",
    "RegistryService.Claim": "payload",
    "RegistryService.Claim of any region": "payload",
    "RegistryService.Acquire": "payload",
    "RegistryService.Heartbeat": "payload checkpoint",
    "RegistryService.Publish": "payload checkpoint",
    "RegistryService.Aggregate": "payload checkpoint",
    "RegistryService.Complete": "payload checkpoint result",
    "RegistryService.Release": "payload checkpoint",
    "RegistryService.Cancel": "payload checkpoint",
    "RegistryService.CompleteValidation overriding": "payload checkpoint result",
    "RegistryService.Validate": "payload checkpoint result",
    "RegistryService.Resume": "payload",
    "RegistryService.Resume as told": "payload",
    "RegistryService.Status": "payload checkpoint result",
    "RegistryService.ListJobs": "payload checkpoint result",
    "RegistryService.History": "result",
    "RegistryService.Logs": "output result",
    "RegistryService.Events": "output result",
    "RegistryService.Watch": "output result",
    "RegistryService.Watch of all": "output result",
}
"""What of a job's data a method tells those who may read it. A method that is not here tells none."""

READERS = {("data", True), ("data", False), ("admin", True), ("admin", False), ("submit", True)}
"""Who may read: with `observe:data`, as admin, and what they asked for themselves."""

HOLDERS = {
    "DequeueJob",
    "Claim",
    "Acquire",
    "Heartbeat",
    "Publish",
    "Aggregate",
    "Complete",
    "Release",
}
"""What a worker reads of the jobs that it owns."""


def readable(name: str, caller: str, *, own: bool) -> set[str]:
    """The data that this caller may see in the answer to this call."""
    allowed = rows()[name][caller][0 if own else 1] == "ok"
    holds = caller == "work" and name.split(maxsplit=1)[0].partition(".")[2] in HOLDERS
    if allowed and (holds or (caller, own) in READERS):
        return set(SHOWN.get(name, "").split())
    return set()


@pytest.mark.parametrize("name", rows())
async def test_data_reaches_those_who_may_read_it_and_nobody_else(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I31: neither an answer, nor an error, nor a line of the log has what was planted in the job."""
    caplog.set_level(logging.DEBUG)
    way = METHOD_CALLS[name]
    states = (way.state, "ended") if way.state == "running" else (way.state,)

    async def seen(here: KeyedServer, caller: str, owner: str) -> set[str]:
        found: set[str] = set()
        for state, kind in product(states, PAYLOADS):
            subject = await here.held_by(caller, await here.subject(owner, state, kind))
            answered = await ask(way, here.caller(caller), subject)
            await here.free(subject)
            assert answered.outcome not in ("internal", "unknown"), (caller, state, kind)
            found |= seen_in(answered.raw)
        return found

    async with open_keyed_server() as here:
        for caller in KNOWN:
            others = await seen(here, caller, STRANGER)
            own = await seen(here, caller, caller)
            assert others == readable(name, caller, own=False), caller
            assert own == readable(name, caller, own=True), caller
        for caller in REFUSED:
            assert await seen(here, caller, caller) == set(), caller

    assert seen_in(caplog.text.encode()) == set()
    assert "hf_" not in caplog.text
