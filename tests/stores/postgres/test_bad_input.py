"""What is wrong with a URL, a user or a value is said in words that help, at once, and never the password."""

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from holdfast.cli.exit_codes import ExitCode
from holdfast.core.errors import Conflict, Denied, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.spec import Spec
from holdfast.ports import JobFilter, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres import sessions
from holdfast.stores.postgres.partitions import JOBS_PER_PARTITION
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    ACTOR,
    OwnSchema,
    connected,
    fact,
    fresh_schema,
    fresh_store_url,
    job_request,
    opened,
    schema_of,
    wanted,
)
from tests.stores.postgres.running_server import MAJOR, guard, server
from verify.postgres_server import free_port

SECRET = "s3cret"
SOON_SECONDS = 3.0
NOT_A_URL = "That is not a PostgreSQL URL"


async def refused(url: str, error: type[HoldfastError], words: str) -> HoldfastError:
    """Open the store and expect to be told why not, soon, and without the password."""
    began = time.monotonic()
    with pytest.raises(error) as told:
        async with opened(url):
            pass
    assert time.monotonic() - began < SOON_SECONDS
    assert re.search(words, str(told.value)), str(told.value)
    assert SECRET not in repr(told.value)
    assert SECRET[:4] not in f"{told.value} {told.value.__cause__}"
    return told.value


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"postgresql://ana:{SECRET}/x@127.0.0.1/db", NOT_A_URL),
        (f"postgresql://ana:{SECRET}#x@127.0.0.1/db", NOT_A_URL),
        (f"postgresql://ana:{SECRET}?x@127.0.0.1/db", NOT_A_URL),
        (f"postgresql://ana:12/{SECRET}@127.0.0.1:1/db", NOT_A_URL),
        (f"postgresql://ana:12#{SECRET}@127.0.0.1:1/db", NOT_A_URL),
        (f"postgresql://ana:12?{SECRET}@127.0.0.1:1/db", NOT_A_URL),
        (f"postgresql://ana:{SECRET}@127.0.0.1:99999/db", NOT_A_URL),
        (f"postgresql://ana:{SECRET}@127.0.0.1:many/db", NOT_A_URL),
        (f"postgresql://ana:{SECRET}@[::1/db", NOT_A_URL),
        (f"postgresql://ana:{SECRET}@h\0st/db", NOT_A_URL),
        ("postgresql://127.0.0.1:1/db?sslmode=some", "sslmode.*must be one of"),
    ],
)
async def test_a_malformed_url_is_refused_and_not_repeated(url: str, words: str) -> None:
    await refused(url, Invalid, words)


@pytest.mark.parametrize("schema", ["", "Jobs", "9lives", "pg_jobs", "a;b", 'a"b', "a b", "é", "x" * 49])
async def test_a_schema_that_cannot_be_a_name_is_refused(schema: str) -> None:
    await refused(server(MAJOR).url(schema=schema), Invalid, "small letters, digits and underscores")


async def test_an_option_that_postgresql_does_not_know_is_the_urls_fault() -> None:
    await refused(server(MAJOR).url(flavour="mild"), Invalid, 'parameter "flavour"')


async def test_a_port_where_nobody_answers() -> None:
    url = f"postgresql://ana:{SECRET}@127.0.0.1:{free_port()}/db"
    await refused(url, Unavailable, "No PostgreSQL answers at 127.0.0.1:.*Is it running")


async def test_a_host_that_does_not_exist() -> None:
    url = f"postgresql://ana:{SECRET}@nobody.invalid/db"
    await refused(url, Unavailable, "at nobody.invalid/db cannot be reached")


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(8)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "words"), [(silent, "did not answer in time"), (web, "PostgreSQL at 127")]
)
async def test_something_else_listens_on_the_port(
    answer: Callable[..., Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CONNECT_SECONDS", 0.5)
    connections: list[asyncio.Task[Any] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        await answer(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    stranger = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    began = time.monotonic()
    with pytest.raises(Unavailable, match=words):
        async with opened(f"postgresql://ana:{SECRET}@127.0.0.1:{port}/db"):
            pass
    assert time.monotonic() - began < SOON_SECONDS
    stranger.close()
    await asyncio.gather(*filter(None, connections))


async def test_a_server_without_tls_for_a_url_that_demands_it() -> None:
    await refused(server(MAJOR).url(sslmode="require"), Unavailable, "cannot be reached.*SSL")


@pytest.fixture
def guarded() -> str:
    """A user who has to give a password."""
    guard("guarded", SECRET)
    return server(MAJOR).url(user="guarded")


async def test_a_wrong_password(guarded: str) -> None:
    wrong = guarded.replace("guarded@", f"guarded:{SECRET}-not@")
    await refused(wrong, Denied, "does not let guarded in: .*Check user and password in the URL")
    await refused(guarded, Denied, "does not let guarded in|password")


async def test_a_password_is_shown_nowhere(guarded: str) -> None:
    schema = fresh_schema()
    server(MAJOR).sql("GRANT CREATE ON DATABASE postgres TO guarded;")
    url = guarded.replace("guarded@", f"guarded:{SECRET}@") + f"?schema={schema}"

    async with opened(url) as store:
        await store.transact([wanted("job")])
        findings = await store.doctor()
        assert SECRET not in f"{store.describe()} {findings}"
    query = guarded + f"?schema={schema}&password={SECRET}"
    async with opened(query) as store:
        assert SECRET not in store.describe()
        assert await store.get(["job"]) != [None]


async def test_a_user_who_does_not_exist() -> None:
    await refused(server(MAJOR).url(user="nobody"), Denied, 'let nobody in.*role "nobody" does not exist')


async def test_a_database_that_does_not_exist() -> None:
    await refused(server(MAJOR).url("nowhere"), Invalid, "There is no database 'nowhere'.*createdb nowhere")


@pytest.fixture
def guest() -> str:
    server(MAJOR).sql("DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN others THEN END $$;")
    return "guest"


async def test_a_user_who_may_not_make_the_schema(guest: str) -> None:
    url = server(MAJOR).url(user=guest, schema=fresh_schema())
    await refused(url, Denied, "guest may not do this.*GRANT CREATE ON DATABASE postgres TO guest")


async def test_a_user_who_may_not_use_the_tables(guest: str) -> None:
    schema = fresh_schema()
    await made(schema)
    words = f"guest may not do this.*GRANT USAGE ON SCHEMA {schema}"
    url = server(MAJOR).url(user=guest, schema=schema)
    await refused(url, Denied, words)
    server(MAJOR).sql(f"GRANT USAGE ON SCHEMA {schema} TO {guest};")
    await refused(url, Denied, words)
    server(MAJOR).sql(
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {guest};"
        f" GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {guest};"
    )

    async with opened(url) as store:
        await store.transact([wanted("job")])
        assert await store.get(["job"]) != [None]


async def made(schema: str) -> None:
    async with opened(server(MAJOR).url(schema=schema)):
        pass


@pytest.mark.parametrize("table", ["job (id integer)", "event (id integer)", "fact (id integer)"])
async def test_a_schema_of_another_program_is_left_as_it_is(table: str) -> None:
    schema = fresh_schema()
    server(MAJOR).sql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table};")
    await refused(server(MAJOR).url(schema=schema), Invalid, r"another program.*\?schema=")
    tables = f"SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace;"
    assert server(MAJOR).sql(tables) == "1"


async def test_a_table_of_another_program_with_the_name_of_our_list() -> None:
    schema = fresh_schema()
    server(MAJOR).sql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.meta (id integer);")
    await refused(server(MAJOR).url(schema=schema), HoldfastError, f"Schema {schema}")


async def test_a_user_set_to_read_only_may_look_and_is_told_why_it_cannot_write() -> None:
    url = fresh_store_url()
    schema = schema_of(url)
    await made(schema)
    server(MAJOR).sql(
        f"SELECT setval('{schema}.job_seq', {JOBS_PER_PARTITION + 7});"  # the next one is to be made
        "DO $$ BEGIN CREATE ROLE reader LOGIN SUPERUSER; EXCEPTION WHEN others THEN END $$;"
        " ALTER ROLE reader SET default_transaction_read_only = on;"
    )

    async with opened(url.replace("postgres@", "reader@")) as store:
        assert await store.counts() == {}
        faults = [found for found in await store.doctor() if found.level == "fault"]
        assert [found.topic for found in faults] == ["store"]
        assert "set to read only" in faults[0].words
        with pytest.raises(Unavailable, match="is read-only: a replica, or set so") as told:
            await store.transact([wanted("job")])
        assert told.value.applied == "no"
    await refused(server(MAJOR).url(user="reader", schema=fresh_schema()), Unavailable, "is read-only")


NUL = "a\0b"
LONE = "a\ud800b"


@pytest.mark.parametrize("text", [NUL, LONE])
async def test_a_value_that_is_no_text_is_refused_or_kept_whole(text: str) -> None:
    url = fresh_store_url()
    calls: list[Callable[[LocalRegistry], Any]] = [
        lambda r: r.enqueue(JobRequest(spec=Spec(name=text), job_id="j"), actor=ACTOR),
        lambda r: r.enqueue(JobRequest(spec=Spec(labels={"a": text}), job_id="j"), actor=ACTOR),
        lambda r: r.enqueue(JobRequest(spec=Spec(queue=text), job_id="j"), actor=ACTOR),
        lambda r: r.enqueue(JobRequest(spec=Spec(lock=text), job_id="j"), actor=ACTOR),
        lambda r: r.enqueue(JobRequest(spec=Spec(region=text), job_id="j"), actor=ACTOR),
        lambda r: r.enqueue(JobRequest(spec=Spec(), job_id="j"), actor=f"user:{text}"),
        lambda r: r.enqueue(JobRequest(spec=Spec(), job_id=text), actor=ACTOR),
        lambda r: r.enqueue(JobRequest(spec=Spec(), job_id="j", submitted_by=text), actor=ACTOR),
        lambda r: r.claim([text], owner="w"),
        lambda r: r.claim(["default"], owner=text),
        lambda r: r.status(text),
        lambda r: r.list_jobs(JobFilter(queue=text)),
        lambda r: r.list_jobs(JobFilter(owner=text)),
        lambda r: r.counts(text),
        lambda r: r.logs(text),
        lambda r: r.locks(text),
        lambda r: r.record([fact(text, None)]),
        lambda r: r.record([msgspec.structs.replace(fact("x", None), actor=text)]),
    ]

    async with opened(url) as store:
        registry = LocalRegistry(store, SystemIds())
        for n, call in enumerate(calls):
            with contextlib.suppress(Conflict, Invalid, NotFound):
                await call(registry)
            await registry.enqueue(JobRequest(spec=Spec(), job_id=f"after-{n}"), actor=ACTOR)
        assert (await registry.verify()).equal
        async with connected() as person:
            view = f"{url.partition('schema=')[2]}.job_event_log"
            assert await person.fetchval(f"SELECT count(*) FROM {view}") >= len(calls)


def cli(url: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "list", "--store", url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    assert SECRET not in ended.stdout + ended.stderr
    return ended.returncode, ended.stderr


def test_the_command_line_says_what_is_wrong_by_its_exit_code() -> None:
    port = free_port()
    for url, code, words in (
        (
            f"postgresql://ana:{SECRET}@127.0.0.1:{port}/db",
            ExitCode.UNAVAILABLE,
            "No PostgreSQL answers",
        ),
        (f"postgresql://ana:12/{SECRET}@127.0.0.1:{port}/db", ExitCode.INVALID, NOT_A_URL),
        (server(MAJOR).url("nowhere"), ExitCode.INVALID, "createdb nowhere"),
        (server(MAJOR).url(user="nobody"), ExitCode.DENIED, "does not let nobody in"),
        (server(MAJOR).url(schema="Jobs"), ExitCode.INVALID, "small letters"),
    ):
        found, errors = cli(url)
        assert (found, words in errors) == (code, True), errors


async def test_an_actor_that_postgresql_cannot_write_is_refused_and_its_neighbours_are_not(
    own: OwnSchema,
) -> None:
    registry = await own.open()
    bad, good = await asyncio.gather(
        registry.enqueue(job_request("job-1"), actor="user:a\0na"),
        registry.enqueue(job_request("job-2"), actor="user:bo"),
        return_exceptions=True,
    )
    assert isinstance(bad, Invalid)
    assert not isinstance(good, BaseException), good
