"""DBOS on PostgreSQL: workflows on a queue, enqueued by its client."""

import threading

import side
import sqlalchemy
from dbos import DBOS, DBOSClient

QUEUE, VERSION = "peers", "1"
CHUNK, POOL = 1000, 20
CONCURRENCY = 500
POLL_SECONDS = 0.05
URL = side.URL.replace("postgres://", "postgresql://", 1)
LEFT = "SELECT count(*) FROM dbos.workflow_status WHERE name = 'noop' AND status IN ('ENQUEUED', 'PENDING')"
FILL = """
INSERT INTO dbos.workflow_status (workflow_uuid, {columns})
SELECT gen_random_uuid()::text, {columns} FROM dbos.workflow_status, generate_series(2, :jobs)
WHERE workflow_uuid = :first
"""
COLUMNS = """
SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
WHERE table_schema = 'dbos' AND table_name = 'workflow_status' AND column_name <> 'workflow_uuid'
AND is_generated = 'NEVER'
"""


@DBOS.workflow(name="noop")
async def noop():
    side.count()


@DBOS.workflow(name="timed")
async def timed(sent):
    side.waited(sent)


@DBOS.workflow(name="holds")
async def holds():
    await side.hold_async()


def launched():
    DBOS(
        config={
            "name": "peers",
            "system_database_url": URL,
            "sys_db_pool_size": POOL,
            "executor_id": side.WORKER,
            "application_version": VERSION,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_SECONDS)


def setup():
    launched()
    DBOS.destroy()


def work():
    launched()
    threading.Event().wait()


def client():
    return DBOSClient(system_database_url=URL, system_database_pool_size=POOL, application_name="peers")


def options(name):
    return {"workflow_name": name, "queue_name": QUEUE}


def bulk(jobs):
    """There is no call that takes many; `enqueue_in_transaction` lets many share one commit."""
    made, engine = client(), database()

    def many(size):
        with engine.begin() as connection:
            for _ in range(size):
                made.enqueue_in_transaction(connection, options("noop"))

    return side.bulk(side.chunks(jobs, CHUNK), many)


def database():
    return sqlalchemy.create_engine(URL.replace("postgresql://", "postgresql+psycopg://", 1))


def fill(jobs):
    """Copies of a job that its own enqueue made; only the ids are new."""
    first = client().enqueue(options("noop")).get_workflow_id()
    with database().begin() as connection:
        columns = connection.execute(sqlalchemy.text(COLUMNS)).scalar_one()
        text = sqlalchemy.text(FILL.format(columns=columns))
        connection.execute(text, {"jobs": int(jobs), "first": first})


def single(jobs):
    made = client()
    return side.single(jobs, lambda: made.enqueue(options("noop")) and None)


def clients(many, jobs):
    made = client()
    return side.client_threads(many, jobs, lambda: made.enqueue(options("noop")))


def waits(times):
    made = client()
    return side.waits(times, lambda sent: made.enqueue(options("timed"), sent) and None)


def hold():
    client().enqueue(options("holds"))


engines = []


def left():
    if not engines:
        engines.append(database())
    with engines[0].connect() as connection:
        return connection.execute(sqlalchemy.text(LEFT)).scalar_one()


if __name__ == "__main__":
    side.main(
        settings=lambda: (
            f"2 worker processes, asynchronous workflows without steps, worker_concurrency {CONCURRENCY}, "
            f"polling_interval_sec {POLL_SECONDS} (there is no NOTIFY for queues), a pool of {POOL}, no log; "
            f"`DBOSClient.enqueue_in_transaction`, {CHUNK:,} to a commit"
        ),
        recovery=lambda: (
            "a worker runs its own jobs again when it is started under the same executor_id; another worker "
            "takes them over only where Conductor, a service of its own, tells it to"
        ),
        setup=setup,
        work=work,
        bulk=bulk,
        fill=fill,
        single=single,
        clients=clients,
        waits=waits,
        hold=hold,
        left=left,
    )
