"""Jobs in a transaction of SQLAlchemy or Django exist if and only if it is committed."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import Error, connection, connections, transaction
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import App, AsyncClient, Client, Invalid, State
from holdfast.sdk.job_function import JobFunction
from tests.sdk import django_databases
from tests.sdk.sample_jobs import add, url_of


class OwnSession(Session):
    """A subclass of the caller's own, as SQLModel and Flask-SQLAlchemy have."""


class OurOwn(Exception):
    pass


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(url_of("postgres", tmp_path))
    yield made
    made.close()


@pytest.fixture
def job(app: App) -> JobFunction[..., int, Any]:
    return app.job(add)


@pytest.fixture
def engine(app: App) -> Iterator[Engine]:
    made = create_engine(alchemy(app.url, "psycopg"))
    yield made
    made.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def async_engine(app: App, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(alchemy(app.url, request.param))
    yield made
    await made.dispose()


@pytest.fixture
def django(tmp_path: Path) -> Iterator[None]:
    django_databases.configure(tmp_path)
    yield
    connections.close_all()


def alchemy(url: str, driver: str) -> str:
    """The URL as SQLAlchemy takes it."""
    return url.partition("?")[0].replace("postgresql://", f"postgresql+{driver}://")


def made(app: App) -> int:
    return app.background.call(lambda client: client.counts()).get(State.QUEUED, 0)


def of_connection(engine: Engine) -> Any:  # noqa: ANN401
    return engine.connect()


def of_session(engine: Engine) -> Any:  # noqa: ANN401
    return Session(engine)


def of_own_session(engine: Engine) -> Any:  # noqa: ANN401
    return OwnSession(engine)


def of_scoped_session(engine: Engine) -> Any:  # noqa: ANN401
    return scoped_session(sessionmaker(engine))


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("make", [of_connection, of_session, of_own_session, of_scoped_session])
def test_a_job_is_part_of_a_transaction_of_sqlalchemy(
    app: App,
    job: JobFunction[..., int, Any],
    engine: Engine,
    make: Callable[[Engine], Any],
    commits: bool,
) -> None:
    found = make(engine)

    job.configure(connection=found).enqueue(1)  # before SQLAlchemy has begun anything
    found.execute(text("CREATE TEMP TABLE invoice (id int) ON COMMIT DROP"))
    job.configure(connection=found).enqueue_many([job.call(2), job.call(3)])
    before = made(app)
    found.commit() if commits else found.rollback()
    found.close()

    assert before == 0
    assert made(app) == (3 if commits else 0)


@pytest.mark.parametrize("make", [of_connection, of_session])
def test_a_transaction_of_nothing_but_a_job_is_committed(
    app: App, job: JobFunction[..., int, Any], engine: Engine, make: Callable[[Engine], Any]
) -> None:
    """What SQLAlchemy has not begun, it does not commit."""
    with make(engine) as found:
        job.configure(connection=found).enqueue(1)
        found.commit()

    assert made(app) == 1


def test_a_block_that_raises_makes_no_job(app: App, job: JobFunction[..., int, Any], engine: Engine) -> None:
    with suppress(OurOwn), Session(engine) as session, session.begin():
        job.configure(connection=session).enqueue(1)
        raise OurOwn

    with engine.begin() as found, Client(app.url) as client:
        client.enqueue(job.call(2), connection=found)

    assert made(app) == 1


def test_a_savepoint_of_sqlalchemy_that_is_undone_takes_its_job_along(
    app: App, job: JobFunction[..., int, Any], engine: Engine
) -> None:
    with Session(engine) as session, session.begin():
        job.configure(connection=session).enqueue(1)
        with suppress(OurOwn), session.begin_nested():
            job.configure(connection=session).enqueue(2)
            raise OurOwn

    assert made(app) == 1


def of_async_session(engine: AsyncEngine) -> Any:  # noqa: ANN401
    return AsyncSession(engine)


def of_async_scoped_session(engine: AsyncEngine) -> Any:  # noqa: ANN401
    return async_scoped_session(async_sessionmaker(engine), lambda: 7)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("make", [None, of_async_session, of_async_scoped_session])
async def test_a_job_is_part_of_an_asynchronous_transaction_of_sqlalchemy(
    app: App,
    job: JobFunction[..., int, Any],
    async_engine: AsyncEngine,
    make: Callable[[AsyncEngine], Any] | None,
    commits: bool,
) -> None:
    found: Any = await async_engine.connect() if make is None else make(async_engine)

    await job.configure(connection=found).enqueue_async(1)  # before SQLAlchemy has begun anything
    await found.execute(text("CREATE TEMP TABLE invoice (id int) ON COMMIT DROP"))
    async with AsyncClient(app.url) as client:
        await client.enqueue(job.call(2), connection=found)
    before = made(app)
    await (found.commit() if commits else found.rollback())
    await found.close()

    assert before == 0
    assert made(app) == (2 if commits else 0)


async def test_an_asynchronous_session_does_not_serve_plain_functions(
    app: App, job: JobFunction[..., int, Any], async_engine: AsyncEngine
) -> None:
    async with AsyncSession(async_engine) as session, async_engine.connect() as found:
        for one in (session, found):
            with pytest.raises(Invalid, match="belongs to an event loop"):
                job.configure(connection=one).enqueue(1)
        with pytest.raises(Invalid, match="belongs to an event loop"):
            await session.run_sync(lambda plain: job.configure(connection=plain).enqueue(1))

    assert made(app) == 0


async def test_a_session_without_a_transaction_is_refused(
    job: JobFunction[..., int, Any], engine: Engine, async_engine: AsyncEngine
) -> None:
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    async_alone = async_engine.execution_options(isolation_level="AUTOCOMMIT")

    with Session(alone) as session, pytest.raises(Invalid, match="Begin a transaction"):
        job.configure(connection=session).enqueue(1)
    async with AsyncSession(async_alone) as other:
        with pytest.raises(Invalid, match="Begin a transaction"):
            await job.configure(connection=other).enqueue_async(1)
    with pytest.raises(Invalid, match="cannot be used: This session is not bound"), Session() as unbound:
        job.configure(connection=unbound).enqueue(1)
    with pytest.raises(Invalid, match="cannot be used: AsyncConnection context has not been started"):
        await job.configure(connection=async_engine.connect()).enqueue_async(1)


def test_a_session_that_has_failed_is_refused(job: JobFunction[..., int, Any], engine: Engine) -> None:
    with Session(engine) as session:
        with suppress(SQLAlchemyError):
            session.execute(text("SELECT 1 / 0"))

        with pytest.raises(Exception, match="current transaction is aborted"):
            job.configure(connection=session).enqueue(1)


def test_a_lost_database_is_told_as_such(job: JobFunction[..., int, Any]) -> None:
    nowhere = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")

    with Session(nowhere) as session, pytest.raises(Exception, match=r"The connection failed: .*refused"):
        job.configure(connection=session).enqueue(1)


async def test_anything_else_is_refused_with_what_is_taken(
    job: JobFunction[..., int, Any], engine: Engine
) -> None:
    taken = r"psycopg .3. or asyncpg, a connection or session of SQLAlchemy .*, or one of Django on psycopg"

    with pytest.raises(Invalid, match=rf"connection is a builtins.object; give one of {taken}"):
        job.configure(connection=object()).enqueue(1)
    with pytest.raises(Invalid, match=r"Engine; give a connection or a session of SQLAlchemy"):
        job.configure(connection=engine).enqueue(1)
    with pytest.raises(Invalid, match=r"Engine; give a connection or a session of SQLAlchemy"):
        await job.configure(connection=engine).enqueue_async(1)
    with pytest.raises(Invalid, match="give one of Django's, such as"):
        job.configure(connection=connections).enqueue(1)
    lite = create_engine("sqlite://")
    with (
        Session(lite) as session,
        pytest.raises(Invalid, match=rf"is a sqlite3.Connection; give one of {taken}"),
    ):
        job.configure(connection=session).enqueue(1)
    lite.dispose()


@pytest.mark.usefixtures("django")
@pytest.mark.parametrize("commits", [True, False])
def test_a_job_is_part_of_a_transaction_of_django(
    app: App, job: JobFunction[..., int, Any], commits: bool
) -> None:
    with suppress(OurOwn), transaction.atomic():
        job.configure(connection=connection).enqueue(1)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE invoice (id int) ON COMMIT DROP")
        job.configure(connection=connections["default"]).enqueue(2)
        before = made(app)
        if not commits:
            raise OurOwn

    assert before == 0
    assert made(app) == (2 if commits else 0)


@pytest.mark.usefixtures("django")
def test_an_inner_block_of_django_that_is_undone_takes_its_job_along(
    app: App, job: JobFunction[..., int, Any]
) -> None:
    mine = job.configure(connection=connection)

    with transaction.atomic():
        mine.enqueue(1)
        with suppress(OurOwn), transaction.atomic():
            mine.enqueue(2)
            raise OurOwn
        mine.enqueue(3)

    assert made(app) == 2


@pytest.mark.usefixtures("django")
async def test_a_coroutine_and_django(app: App, job: JobFunction[..., int, Any]) -> None:
    with pytest.raises(Invalid, match=r"with transaction\.atomic"):
        await job.configure(connection=connection).enqueue_async(1)

    assert made(app) == 0


@pytest.mark.usefixtures("django")
def test_django_without_a_sound_transaction_is_refused(app: App, job: JobFunction[..., int, Any]) -> None:
    mine = job.configure(connection=connection)

    with pytest.raises(
        Invalid, match=r"Begin a transaction on the connection first: with transaction\.atomic"
    ):
        mine.enqueue(1)
    with transaction.atomic():
        with suppress(Error, OurOwn), transaction.atomic(savepoint=False):
            raise OurOwn
        with pytest.raises(Invalid, match="cannot be used: An error occurred in the current transaction"):
            mine.enqueue(1)
    connection.set_autocommit(False)
    mine.enqueue(2)
    connection.commit()

    assert made(app) == 1


@pytest.mark.usefixtures("django")
def test_a_store_in_a_file_takes_jobs_after_the_commit(tmp_path: Path) -> None:
    app = App(url_of("sqlite", tmp_path))
    job = app.job(add)
    job.enqueue(0)

    for engine in (create_engine(f"sqlite:///{tmp_path / 'mine.db'}"),):
        with (
            Session(engine) as session,
            pytest.raises(Invalid, match=r"Only a postgresql:// .* have committed"),
        ):
            job.configure(connection=session).enqueue(1)
        engine.dispose()
    with transaction.atomic("file"):
        with pytest.raises(Invalid, match=r"Only a postgresql:// .*transaction.on_commit"):
            job.configure(connection=connections["file"]).enqueue(1)
        transaction.on_commit(lambda: job.enqueue(2), "file")
        before = made(app)
    with suppress(OurOwn), transaction.atomic("file"):
        transaction.on_commit(lambda: job.enqueue(3), "file")
        raise OurOwn

    assert before == 1
    assert made(app) == 2
    app.close()


def test_neither_library_is_imported_by_holdfast() -> None:
    program = (
        "import sys, holdfast; app = holdfast.App('memory://')\n"
        "@app.job\ndef f() -> None: ...\n"
        "f.enqueue(); app.close()\n"
        "print({'sqlalchemy', 'django'} & sys.modules.keys())"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
