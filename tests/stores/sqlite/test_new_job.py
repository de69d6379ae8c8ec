"""One new job alone: it is written as any other commit writes it, and what is kept in memory is never old."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Unavailable
from holdfast.core.lifecycle import Enqueue, Refusal, Success
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec
from holdfast.failpoint import arm
from holdfast.ports import ById, Completion, Decision, JobRequest, Work
from holdfast.stores.sqlite.commit import SqliteCommit
from holdfast.stores.sqlite.new_job import NewJobWriter
from holdfast.testing.world import World, open_world
from tests.conftest import sqlite_store

PLAIN = JobRequest(spec=Spec(kind="k"))
OTHERS = [
    JobRequest(spec=Spec(kind="k", lock="disk")),
    JobRequest(spec=Spec(kind="k", ttl=timedelta(hours=1))),
    JobRequest(spec=Spec(kind="k"), register=True),
]


@pytest.fixture
def without_commits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse() -> None:
        monkeypatch.setattr(SqliteCommit, "run", lambda self: pytest.fail("a working set was made"))

    return refuse


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all that is in the file, apart from its secret."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = [
        name
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
    ]
    found = {name: list(connection.execute(f"SELECT * FROM {name}")) for name in names}
    connection.close()
    found["meta"] = [row for row in found["meta"] if row[0] != "secret"]
    return found


async def enqueued(folder: Path, requests: list[JobRequest]) -> dict[str, list[tuple[object, ...]]]:
    folder.mkdir()
    async with open_world(sqlite_store, folder) as world:
        for request in requests:
            await world.registry.enqueue(request, actor="user:ana")
            world.clock.advance(1)
        await world.check()
        return tables(folder / "jobs.db")


SPECS = st.builds(
    Spec,
    kind=st.sampled_from(["k", "other"]),
    queue=st.sampled_from(["default", "bulk"]),
    payload=st.sampled_from([Raw(b"{}"), Raw('{"a":"ä"}'.encode())]),
    name=st.none() | st.just("n"),
    priority=st.sampled_from([5, 1]),
    region=st.none() | st.just("eu"),
    executor=st.none() | st.just("gpu"),
    lock=st.none() | st.just("disk"),
    timeout=st.none() | st.just(timedelta(seconds=9)),
    delay=st.none() | st.just(timedelta(seconds=9)),
    ttl=st.none() | st.just(timedelta(seconds=9)),
    labels=st.just({}) | st.just({"a": "b"}),
    promised_outputs=st.sampled_from([0, 2]),
) | st.builds(
    lambda secrets: Spec(payload=encode_process_spec(ProcessSpec(argv=("true",), secrets=secrets))),
    st.sampled_from([(), ("TOKEN",)]),
)
REQUESTS = st.builds(
    JobRequest,
    spec=SPECS,
    register=st.booleans(),
    submitted_by=st.none() | st.just("user:bo"),
    correlation_id=st.none() | st.just("study"),
    trace_id=st.none() | st.just("4bf92f3577b34da6a3ce929d0e0e4736"),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(REQUESTS, min_size=1, max_size=6))
async def test_the_rows_are_those_of_any_commit(
    tmp_path_factory: pytest.TempPathFactory, requests: list[JobRequest]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    alone = await enqueued(folder / "alone", requests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewJobWriter, "write", lambda *_: None)
        assert alone == await enqueued(folder / "others", requests)


@pytest.mark.parametrize("asked", [PLAIN, replace(PLAIN, job_id="mine"), replace(PLAIN, request_id="mine")])
async def test_a_lone_enqueue_makes_no_working_set(
    tmp_path: Path, without_commits: Callable[[], None], asked: JobRequest
) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        without_commits()
        job = await world.registry.enqueue(asked, actor="user:ana")
        assert await world.registry.status(job.job_id) == job


async def test_a_repeated_request_is_answered_by_its_job(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        asked = JobRequest(spec=Spec(kind="k"), request_id="mine")
        first = await world.registry.enqueue(asked, actor="user:ana")
        assert await world.registry.enqueue(asked, actor="user:ana") == first
        with pytest.raises(Conflict):
            await world.registry.enqueue(
                JobRequest(spec=Spec(kind="other"), request_id="mine"), actor="user:ana"
            )
        await world.check()


async def test_what_others_write_is_seen(tmp_path: Path) -> None:
    """By another process, by another call of this one, and by a prune of the newest jobs."""
    async with open_world(sqlite_store, tmp_path) as world, open_world(sqlite_store, tmp_path) as other:
        made: list[str] = []

        async def enqueue(where: World, job_id: str, request: JobRequest = PLAIN) -> None:
            asked = replace(request, job_id=job_id)
            made.append((await where.registry.enqueue(asked, actor="user:ana")).job_id)

        for n in range(3):
            await enqueue(world, f"here-{n}")
            await enqueue(other, f"there-{n}")
            await enqueue(other, f"again-{n}")
            await enqueue(world, f"special-{n}", OTHERS[n])
            await enqueue(world, f"more-{n}")

        listed = [job.job_id for job in (await world.registry.list_jobs(limit=100)).jobs]
        assert listed == made
        feed = (await world.store.events(after=None, limit=100)).events
        assert [event.job_id for event in feed] == made
        await world.check()


async def test_after_a_prune_tokens_and_numbers_go_on(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        await world.registry.enqueue(JobRequest(spec=Spec(), job_id="again"), actor="user:ana")
        [grant] = await world.registry.claim(["default"], owner="w")
        await world.registry.complete_many([Completion(grant, Success())])
        [last] = (await world.store.events(after=None, limit=100)).events[-1:]
        world.clock.advance(10)
        await world.registry.prune(older_than=timedelta(seconds=1))

        job = await world.registry.enqueue(JobRequest(spec=Spec(), job_id="again"), actor="user:ana")

        assert job.fencing_token == grant.fencing_token
        [event] = (await world.store.events(after=None, limit=100)).events
        assert (event.log_id or 0) > (last.log_id or 0)
        await world.check()


@pytest.mark.parametrize("place", ["sqlite.new_job_inserted", "sqlite.written"])
async def test_what_was_rolled_back_is_forgotten(tmp_path: Path, place: str) -> None:
    def fail(name: str) -> None:
        if name == place:
            raise Unavailable("planted")

    async with open_world(sqlite_store, tmp_path) as world:
        for queue in ("default", "new"):
            request = JobRequest(spec=Spec(kind="k", queue=queue))
            arm(fail)
            try:
                with pytest.raises(Unavailable):
                    await world.registry.enqueue(request, actor="user:ana")
            finally:
                arm(None)
            await world.registry.enqueue(request, actor="user:ana")
        assert [row[0] for row in tables(tmp_path / "jobs.db")["job"]] == [1, 2]
        assert [row[0] for row in tables(tmp_path / "jobs.db")["lane"]] == [1, 2]
        await world.check()


async def test_a_decision_that_breaks_is_a_refusal(tmp_path: Path) -> None:
    def broken(*_: object) -> Decision:
        raise KeyError("planted")

    async with open_world(sqlite_store, tmp_path) as world:
        command = Enqueue(op_id="op", job_id="job", spec=PLAIN.spec, actor="user:ana")
        [[decision]] = await world.store.transact([Work(ById("job", fresh=True), broken, command)])
        assert isinstance(decision, Refusal)
        assert "planted" in str(decision.error)
