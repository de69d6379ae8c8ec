"""A user who may write to the tables and does not own them: what works, and what is left to the owner."""

from datetime import timedelta

import pytest

from holdfast.core.errors import Denied
from holdfast.stores.postgres import maintenance
from tests.stores.postgres.open_stores import (
    OwnSchema,
    finish_job,
    job_request,
)


async def test_a_user_who_is_not_the_owner_gets_in_while_there_is_room(own: OwnSchema) -> None:
    await own.open()
    person = await own.connect()
    url = await own.worker_url(person)
    await own.skip_to(person, 2**18 + 7)
    registry = await own.open(url)
    assert (await registry.enqueue(job_request("job-1"), actor="user:ana")).version == 1
    await own.skip_to(person, 2**21)
    with pytest.raises(Denied):
        await own.open(url)


async def test_a_user_who_is_not_the_owner_prunes_what_he_may(own: OwnSchema) -> None:
    owner = await own.open()
    await finish_job(owner, "job-1")
    person = await own.connect()
    url = await own.worker_url(person)
    await own.skip_to(person, 3 * 2**18)
    await own.open()  # with the next partitions
    registry = await own.open(url)
    assert (await registry.prune(older_than=timedelta())).jobs == 1


async def test_housekeeping_that_fails_is_nobodys_loss(
    own: OwnSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own.open()
    person = await own.connect()
    monkeypatch.setattr(maintenance, "COMMITS_PER_CLEANING", 1)
    worker = await own.open(await own.worker_url(person))
    await own.skip_to(person, 2**18 + 7)
    job = await worker.enqueue(job_request("job-1"), actor="user:ana")
    assert job.version == 1
