"""Batches over the same jobs in opposite orders, by several clients of one PostgreSQL store at once."""

import asyncio
import random
import time
from collections.abc import Awaitable, Sequence

from msgspec import Struct

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.ports.registry import Completion
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres.store import PostgresStore

BATCH = 200


class Orders(Struct):
    """What came of batches over the same jobs in opposite orders."""

    calls: int = 0
    refused: int = 0
    longest_seconds: float = 0.0
    commits: int = 0
    retries: int = 0
    errors: list[str] = []


async def opposite_orders(url: str, *, rounds: int) -> Orders:
    """Four clients renew, cancel and complete the same jobs at once, each in an order of its own."""
    clients = [await open_local(url) for _ in range(4)]
    done, chance = Orders(), random.Random(4)
    for n in range(rounds):
        names = [f"order-{n}-{m}" for m in range(BATCH)]
        turns = [
            client.enqueue_many(_requests(names[::step]), actor="user:load")
            for client, step in zip(clients, (1, -1, 1, -1), strict=True)
        ]
        await _timed(done, turns)
        grants = await clients[0].claim(["default"], owner="w", limit=BATCH)
        await _timed(
            done,
            [
                _renewed(clients[0], grants),
                _renewed(clients[1], grants[::-1], cancel=chance),
                _cancelled(clients[2], chance.sample(grants, BATCH)),
                _completed(clients[3], grants[::-1][: BATCH // 2]),
            ],
        )
        for grant in grants:
            await _answers([clients[0].cancel(grant.job_id, actor="user:load", hard=True)])
    for client in clients:
        assert isinstance(client._store, PostgresStore)
        done.commits += client._store.commits
        done.retries += client._store.retries
        await client.close()
    return done


def _requests(names: Sequence[str]) -> list[JobRequest]:
    return [JobRequest(spec=Spec(), job_id=name) for name in names]


async def _timed(done: Orders, turns: Sequence[Awaitable[object]]) -> None:
    started = time.monotonic()
    for found in await asyncio.gather(*turns, return_exceptions=True):
        answers = found if isinstance(found, list) else [found]
        done.calls += len(answers)
        for answer in answers:
            if isinstance(answer, Conflict | Fenced):
                done.refused += 1
            elif isinstance(answer, BaseException):
                done.errors.append(repr(answer))
    done.longest_seconds = max(done.longest_seconds, time.monotonic() - started)


async def _answers(calls: Sequence[Awaitable[object]]) -> list[object]:
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def _renewed(
    client: LocalRegistry, grants: Sequence[Grant], cancel: random.Random | None = None
) -> list[object]:
    """Renew all leases in one batch; with `cancel`, ask some of the owners to stop instead."""
    return await _answers(
        [
            client.cancel(grant.job_id, actor="user:load")
            if cancel and cancel.random() < 0.5
            else client.heartbeat(grant)
            for grant in grants
        ]
    )


async def _cancelled(client: LocalRegistry, grants: Sequence[Grant]) -> list[object]:
    return await _answers([client.cancel(grant.job_id, actor="user:load") for grant in grants])


async def _completed(client: LocalRegistry, grants: Sequence[Grant]) -> list[object]:
    return list(await client.complete_many([Completion(grant, Success()) for grant in grants]))
