"""How often the server is asked: a few new jobs are one statement, a claim of a few that wait is two."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg
import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres import commit, notifications, server_time, sessions
from holdfast.stores.postgres import store as store_module
from holdfast.stores.postgres.claim_commit import CLAIM_UNLOCKED_MAX, ClaimCommit
from holdfast.stores.postgres.commit import NUMBERED_MAX
from holdfast.stores.postgres.server_time import DRIFT_MAX, ServerTime
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.timestamp_codec import decode_timestamp, encode_timestamp
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.fakes import CountingIds
from tests.stores.postgres.lossy_connection import open_lossy
from tests.stores.postgres.open_stores import (
    claimed,
    connected,
    fresh_store_url,
    jobs_of,
    opened,
    schema_of,
    wanted,
)

ACTOR = "user:ana"
LONG = timedelta(minutes=5)
INSTANT = re.compile(r"[0-9-]+T[0-9:.]+Z|\b[0-9]{16}\b")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, half a second may pass between reading and writing; a store decides again then,
    and asks for the time anew. These tests count statements: here, nothing is late."""
    monkeypatch.setattr(commit, "WAIT_MAX", LONG)
    monkeypatch.setattr(server_time, "FRESH_SECONDS", LONG.total_seconds())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is sent; every commit tells of itself, so that nobody tells of it later."""
    heard: list[str] = []
    fetch = Session.fetch

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        heard.append(sql)
        return await fetch(self, sql, *parameters)

    monkeypatch.setattr(Session, "fetch", noted)
    monkeypatch.setattr(notifications, "QUIET_SECONDS", 0)
    return heard


def requests(count: int, spec: Spec = Spec()) -> list[JobRequest]:
    return [JobRequest(spec=spec)] * count


@pytest.mark.parametrize(
    ("request_count", "spec", "statements"),
    [
        (1, Spec(), 1),
        (NUMBERED_MAX, Spec(), 1),
        (NUMBERED_MAX + 1, Spec(), 2),
        (1, Spec(lock="disk"), 3),
    ],
    ids=["one", "a few", "many", "with a lock"],
)
async def test_a_few_new_jobs_are_one_statement(
    request_count: int, spec: Spec, statements: int, said: list[str]
) -> None:
    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many(requests(1, spec), actor=ACTOR)  # its lane
        said.clear()

        jobs = await registry.enqueue_many(requests(request_count, spec), actor=ACTOR)

        assert len(said) == statements
        page = await registry.list_jobs()
        assert [job.job_id for job in page.jobs][1:] == [job.job_id for job in jobs]
        assert (await registry.verify()).equal


async def test_who_has_not_heard_the_servers_time_asks_for_it_first(said: list[str]) -> None:
    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many(requests(1), actor=ACTOR)
        store._context.time.stop_estimating()
        said.clear()
        await registry.enqueue_many(requests(1), actor=ACTOR)
        assert len(said) == 2


async def test_a_guess_of_the_servers_time_is_not_ahead_of_it() -> None:
    async with opened(fresh_store_url()) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many(requests(1), actor=ACTOR)
        guess = store._context.time.estimate()
        assert guess is not None
        assert guess <= await person.fetchval("SELECT clock_timestamp()")


def test_the_servers_time_is_guessed_only_for_a_while() -> None:
    class Clock(SystemClock):
        seconds = 100.0

        def monotonic(self) -> float:
            return self.seconds

    clock, now = Clock(), datetime.now(UTC)
    time = ServerTime(clock)
    assert time.estimate() is None
    assert time.observe(now, time.begin_reading())
    clock.seconds += 1
    assert time.estimate() == now + timedelta(seconds=1 - DRIFT_MAX)
    clock.seconds += server_time.FRESH_SECONDS
    assert time.estimate() is None
    assert time.observe(now + timedelta(seconds=1 + server_time.FRESH_SECONDS), time.begin_reading())
    time.stop_estimating()
    assert time.estimate() is None


async def test_new_jobs_whose_answer_was_lost_are_found(tmp_path: Path) -> None:
    async with open_lossy(tmp_path, PostgresStore) as lossy:
        await lossy.registry.enqueue_many(requests(1), actor=ACTOR)
        lossy.proxy.swallow_commit_answer()

        made = await lossy.registry.enqueue_many(requests(3), actor=ACTOR)

        assert lossy.proxy.swallowed == 1
        page = await lossy.direct.list_jobs()
        assert [job.job_id for job in page.jobs][1:] == [job.job_id for job in made]
        assert (await lossy.direct.verify()).equal


async def test_new_jobs_that_may_have_landed_are_in_doubt_while_the_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "AWAY_SECONDS_MAX", 0.5)

    async with open_lossy(tmp_path, PostgresStore) as lossy:
        await lossy.registry.enqueue_many(requests(1), actor=ACTOR)
        lossy.proxy.swallow_commit_answer()
        lossy.proxy.refuse()
        with pytest.raises(Unavailable) as lost:
            await lossy.registry.enqueue_many(requests(3), actor=ACTOR)
        assert lost.value.applied == "unknown"
        assert len((await lossy.direct.list_jobs()).jobs) == 4
        lossy.proxy.accept()


async def test_a_guess_that_a_frozen_process_has_slept_over_makes_no_job_old() -> None:
    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many(requests(1), actor=ACTOR)
        short = Spec(ttl=2 * LONG, queue="short")
        await registry.enqueue_many(requests(1, short), actor=ACTOR)  # its lane
        assert await registry.claim(["short"], owner="w")
        time = store._context.time
        behind = await store.now() - 3 * LONG
        time.accept(behind, time.begin_reading(), time.steps)
        await registry.enqueue_many(requests(1, short), actor=ACTOR)
        assert await registry.claim(["short"], owner="w")
        assert store.retries == 1


async def test_the_time_is_heard_from_our_own_sessions_only() -> None:
    url = fresh_store_url()

    async with (
        opened(url) as store,
        await psycopg.AsyncConnection.connect(url.partition("?")[0]) as person,
    ):
        registry = LocalRegistry(store, SystemIds())
        await person.execute("SET TIME ZONE 'Europe/Berlin'")
        store._context.time.stop_estimating()
        await registry.enqueue_many(requests(1), actor=ACTOR, connection=person)
        assert store._context.time.estimate() is None


async def test_who_yields_and_then_loses_its_connection_has_written_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lossy(tmp_path, PostgresStore) as lossy:
        assert not await lossy.registry.claim(["default"], owner="w", limit=5)
        await lossy.direct.enqueue_many(requests(2), actor=ACTOR)
        seize = ClaimCommit.claim_unlocked

        async def late(self: ClaimCommit) -> bool:
            monkeypatch.setattr(ClaimCommit, "claim_unlocked", seize)
            await lossy.direct.claim(["default"], owner="quicker")
            seized = await seize(self)
            lossy.proxy.cut()
            return seized

        monkeypatch.setattr(ClaimCommit, "claim_unlocked", late)
        grants = await lossy.registry.claim(["default"], owner="w", limit=5)
        assert len(grants) == 1


async def test_a_claim_of_the_few_that_wait_is_two_statements(said: list[str]) -> None:
    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        assert not await registry.claim(["default"], owner="w", limit=20)
        made = await registry.enqueue_many(requests(CLAIM_UNLOCKED_MAX), actor=ACTOR)
        said.clear()

        grants = await registry.claim(["default"], owner="w", limit=20)

        assert len(said) == 2
        assert [grant.job_id for grant in grants] == [job.job_id for job in made]
        assert [grant.fencing_token for grant in grants] == [1] * CLAIM_UNLOCKED_MAX
        done = [await registry.complete(grant, Success()) for grant in grants]
        assert {job.state for job in done} == {State.SUCCEEDED}
        assert (await registry.verify()).equal


@pytest.mark.parametrize("spec", [Spec(), Spec(lock="disk")], ids=["more", "a lock"])
async def test_more_than_a_few_are_locked_before_they_are_claimed(spec: Spec, said: list[str]) -> None:
    count = 1 if spec.lock else CLAIM_UNLOCKED_MAX + 1

    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        assert not await registry.claim(["default"], owner="w", limit=50)
        await registry.enqueue_many(requests(count, spec), actor=ACTOR)
        said.clear()
        grants = await registry.claim(["default"], owner="w", limit=50)
        assert any("claim_4" in sql for sql in said)
        assert len(grants) == count
        assert (await registry.verify()).equal


@pytest.mark.parametrize("taken", [1, 3])
async def test_who_is_too_late_for_what_it_has_seen_gets_the_rest(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_store_url()

    async with opened(url) as store, opened(url) as quicker:
        await store.transact([claimed("op-1", limit=5)])
        made = jobs_of(await quicker.transact([wanted() for _ in range(3)]))
        seize = ClaimCommit.claim_unlocked

        async def late(self: ClaimCommit) -> bool:
            monkeypatch.setattr(ClaimCommit, "claim_unlocked", seize)
            [first] = await quicker.transact([claimed("op-2", limit=taken)])
            assert len(first) == taken
            return await seize(self)

        monkeypatch.setattr(ClaimCommit, "claim_unlocked", late)
        [rest] = await store.transact([claimed("op-3", limit=5)])

        got = [job.job_id for job in jobs_of([[decision] for decision in rest])]
        assert got == [job.job_id for job in made[taken:]]
        assert store.retries == 0
        assert (await LocalRegistry(store, SystemIds()).verify()).equal


async def test_a_moment_goes_to_the_server_and_back_as_it_is() -> None:
    moments = [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 11, 16, 4, 5, 6, 7, tzinfo=UTC),
    ]
    assert [decode_timestamp(encode_timestamp(moment)) for moment in moments] == moments
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    for moment in (twice, twice.replace(fold=1)):
        assert decode_timestamp(encode_timestamp(moment)) == moment.astimezone(UTC)
    with pytest.raises(TypeError):
        encode_timestamp(datetime(2026, 10, 25, 2, 30))

    async with opened(fresh_store_url()) as store:

        async def ask(session: Session) -> None:
            [(back, first, last)] = await session.fetch(
                "SELECT $1::timestamptz[], '-infinity'::timestamptz, 'infinity'::timestamptz",
                moments,
            )
            assert back == moments
            assert (first.year, last.year) == (1, 9999)

        await store._sessions.use(ask)


@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        Spec(queue="gpu", priority=7, region="eu", executor="docker", delay=LONG, ttl=2 * LONG),
    ],
    ids=["plain", "special"],
)
async def test_the_statement_for_one_new_job_writes_what_the_one_for_any_commit_would(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_written(*_: object) -> None: ...

    written = []
    for general in (False, True):
        if general:
            monkeypatch.setattr(store_module, "write_new_job", nothing_written)
        url = fresh_store_url()
        async with opened(url) as store, connected() as person:
            registry = LocalRegistry(store, CountingIds())
            for _ in range(2):  # the first asks for the time, and makes the lane
                await registry.enqueue_many(requests(1, spec), actor=ACTOR)
            rows = [await person.fetch(sql) for sql in rows_of_new_jobs(schema_of(url))]
            written.append([[INSTANT.sub("then", str(row)) for row in some] for some in rows])
            assert (await registry.verify()).equal

    alone, any_commit = written
    assert alone == any_commit
    assert [len(rows) for rows in alone] == [2, 2, 2, 2, 2, 2 if spec.ttl else 0]


@pytest.mark.parametrize(
    ("spec", "alone"), [(Spec(), True), (Spec(ttl=LONG), True), (Spec(lock="disk"), False)]
)
async def test_a_single_job_without_a_lock_is_written_by_the_statement_for_one(
    spec: Spec, alone: bool, said: list[str]
) -> None:
    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many(requests(1, spec), actor=ACTOR)  # its lane
        said.clear()
        await registry.enqueue_many(requests(1, spec), actor=ACTOR)
        assert ("new_job_4" in said[-1]) is alone


def rows_of_new_jobs(schema: str) -> list[str]:
    """A query for each table that a new job is in; instants are given by what follows from them."""
    return [
        f"SELECT to_jsonb(new) - 'created_at' FROM {schema}.job AS new ORDER BY seq",
        f"""SELECT to_jsonb(new) - '{{ready_at,updated_at,due_at}}'::text[], updated_at = created_at,
                   new.ready_at - created_at, new.due_at - created_at
            FROM {schema}.state AS new JOIN {schema}.job USING (seq) ORDER BY seq""",
        f"""SELECT lane, seq, new.lock, ready_at - created_at, until - created_at
            FROM {schema}.ready AS new JOIN {schema}.job USING (seq) ORDER BY seq""",
        f"""SELECT to_jsonb(new) - 'occurred_at', occurred_at = created_at
            FROM {schema}.segment AS new JOIN {schema}.job ON seq::text = events ->> 'job' ORDER BY commit""",
        f"SELECT queue, state, jobs FROM {schema}.queue_count ORDER BY ctid",
        f"""SELECT new.jobs, due_at - created_at
            FROM {schema}.alarm AS new JOIN {schema}.job ON seq = ANY(jobs) ORDER BY seq""",
    ]


async def test_a_new_job_whose_time_is_from_before_a_step_of_the_clock_is_decided_again() -> None:
    url = fresh_store_url()
    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many(requests(1), actor=ACTOR)
        steps = '{"noticed_by": "another process"}'
        await person.execute(f"INSERT INTO {schema_of(url)}.meta (name, value) VALUES ('clock', $1)", steps)
        retries = store.retries

        await registry.enqueue_many(requests(1), actor=ACTOR)

        assert store.retries == retries + 1
        assert store._context.time.steps == steps
        assert len((await registry.list_jobs()).jobs) == 2


async def test_jobs_that_keep_their_place_send_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        for _ in range(CLAIM_UNLOCKED_MAX + 1):
            await registry.enqueue_many(requests(1), actor=ACTOR)
        times: list[object] = []
        write = Session.write

        async def noted(self: Session, sql: str, *parameters: object) -> object:
            columns = [column for column in parameters if isinstance(column, list)]
            many = [column for column in columns if len(column) > CLAIM_UNLOCKED_MAX]
            times.extend(one for column in many for one in column if isinstance(one, datetime))
            return await write(self, sql, *parameters)

        monkeypatch.setattr(Session, "write", noted)
        grants = await registry.claim(["default"], owner="w", limit=CLAIM_UNLOCKED_MAX + 1)
        await registry.complete_many([Completion(grant, Success()) for grant in grants])

        assert not times
        done = await store.get([grant.job_id for grant in grants])
        assert [job.ready_at for job in done if job] == [grant.job.ready_at for grant in grants]
        assert all(job is not None and job.state is State.SUCCEEDED for job in done)
        assert (await registry.verify()).equal
