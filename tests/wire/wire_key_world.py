"""Callers with keys of their own, for the tests of keys and task tokens."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from wire_access_world import Caller, Stage, stage

from holdfast.core.access import Scope
from holdfast.server import keyring
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old

Body = Callable[[Stage], Coroutine[None, None, None]]


def play(body: Body) -> None:
    """Run it on a stage where the server looks at once for a key that it does not know."""

    async def main() -> None:
        async with stage() as here:
            await body(here)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyring, "AGAIN_SECONDS", 0.0)
        asyncio.run(main())


async def key(here: Stage, name: str, *scopes: Scope, **more: Any) -> Caller:  # noqa: ANN401
    """Somebody new, with a key."""
    made = await here.registry.create_key(name=name, scopes=scopes, actor="user:root", **more)
    return Caller(here.served.url, made[1])


async def refusal(call: Coroutine[Any, Any, Any]) -> Code:
    with pytest.raises(ConnectError) as caught:
        await call
    return caught.value.code


async def update(caller: Caller, token: str) -> old.UpdateJobResponse:
    return await caller.jobs.update_job(
        old.UpdateJobRequest(task_token=token), headers=caller.headers
    )


async def count(caller: Caller) -> object:
    return await caller.registry.count_jobs(pb.CountJobsRequest(), headers=caller.headers)


async def create(caller: Caller, **fields: Any) -> pb.CreateKeyResponse:  # noqa: ANN401
    asked = pb.CreateKeyRequest(**fields)
    return await caller.registry.create_key(asked, headers=caller.headers)
