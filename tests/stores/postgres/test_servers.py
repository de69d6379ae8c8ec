"""The servers our tests stand on do what they say: start, die, pool, lose answers, leave nothing."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psycopg
import pytest

from verify.pooler import Pooler
from verify.postgres_server import PostgresServer, ServerFailed
from verify.wire_proxy import WireProxy

ROOT = Path(__file__).parents[3]
OWNER = """
import signal, sys
from verify.pooler import Pooler
from verify.postgres_server import PostgresServer
server = PostgresServer(fast=True)
server.start()
pooler = Pooler(server)
pooler.start()
print(server.pid, server.folder, pooler.pid, pooler.folder, flush=True)
if sys.argv[1] == "waits":
    signal.pause()
"""


def eventually(holds: Callable[[], bool], patience_seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + patience_seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return state_and_parent(pid)[0] != "Z"
    return False


def state_and_parent(pid: int) -> tuple[str, int]:
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


@pytest.mark.parametrize("major", [15, 18])
def test_a_server_of_this_version_answers_durably_and_not_as_root(major: int) -> None:
    with PostgresServer(major, fast=True) as server:
        assert int(server.sql("SHOW server_version_num;")) // 10000 == major
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
            assert server.sql(f"SHOW {setting};") == "on"
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        folder, pid = server.folder, server.pid
    assert not folder.exists()
    assert not is_alive(pid)


def test_databases_are_created_from_a_template_and_dropped() -> None:
    with PostgresServer(fast=True) as server:
        server.create_database("first one")
        server.sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('yes');", "first one")
        server.create_database("second", template="first one")
        assert server.sql("SELECT word FROM kept;", "second") == "yes"
        server.drop_database("second")
        with pytest.raises(ServerFailed, match='database "second" does not exist'):
            server.sql("SELECT 1;", "second")


def test_a_setting_that_postgresql_refuses_is_told_from_its_log() -> None:
    server = PostgresServer(fast=True, settings={"max_connections": "many"})
    with pytest.raises(ServerFailed, match='invalid value for parameter "max_connections"'):
        server.start()
    server.close()


def test_a_killed_server_starts_again_with_the_committed_row() -> None:
    with PostgresServer(fast=True) as server:
        server.sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('yes');")
        asleep = threading.Thread(target=lambda: fails(server, "SELECT pg_sleep(100);"), daemon=True)
        asleep.start()
        backends = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg\\_sleep(100)%';"
        assert eventually(lambda: server.sql(backends) != "")
        backend = int(server.sql(backends))
        url, pid = server.url(), server.pid
        server.kill()
        assert not is_alive(pid)
        assert not is_alive(backend)
        server.start()
        assert server.url() == url
        assert server.sql("SELECT word FROM kept;") == "yes"
        asleep.join()


def fails(server: PostgresServer, text: str) -> None:
    with pytest.raises(ServerFailed):
        server.sql(text)


@pytest.mark.slow
def test_a_killed_server_leaves_no_backend_that_was_too_busy_to_notice() -> None:
    with PostgresServer(fast=True) as server:
        endless = "DO $$ BEGIN LOOP END LOOP; END $$;"
        busy = threading.Thread(target=lambda: fails(server, endless), daemon=True)
        busy.start()
        backends = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO %';"
        assert eventually(lambda: server.sql(backends) != "")
        backend = int(server.sql(backends))
        server.kill()
        assert not is_alive(backend)
        server.start()
        busy.join()


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_a_restart_keeps_port_and_rows(mode: str) -> None:
    with PostgresServer(fast=True) as server:
        server.sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('yes');")
        pid, port = server.pid, server.port
        server.settings["fsync"] = "off"
        server.restart(mode)  # type: ignore[arg-type]
        assert (server.pid != pid, server.port) == (True, port)
        assert server.sql("SELECT word FROM kept; SHOW fsync;") == "yes\noff"


def test_an_old_process_number_that_somebody_else_has_now_does_not_stop_a_start() -> None:
    with PostgresServer(fast=True) as somebody, PostgresServer(fast=True) as server:
        server.kill()
        old = server.data / "postmaster.pid"
        old.write_text("\n".join([str(somebody.pid), *old.read_text().splitlines()[1:]]) + "\n")
        server.start()
        assert server.sql("SELECT 1;") == "1"


def test_a_server_outlives_the_thread_that_started_it() -> None:
    server = PostgresServer(fast=True)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert server.sql("SELECT 1;") == "1"
    server.close()


@pytest.mark.parametrize("end", ["waits", "returns"])
def test_no_server_outlives_its_owner(end: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, end], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    with owner.stdout as output:
        server, data, pooler, pool = output.readline().split()
    if end == "waits":
        assert is_alive(int(server))
        owner.send_signal(signal.SIGKILL)
    assert owner.wait(20) == (-signal.SIGKILL if end == "waits" else 0)
    for pid, folder in ((server, data), (pooler, pool)):
        assert eventually(lambda pid=pid: not is_alive(int(pid)))  # type: ignore[misc]
        assert eventually(lambda folder=folder: not Path(folder).exists())  # type: ignore[misc]


def test_the_server_ends_when_its_keeper_is_killed() -> None:
    server = PostgresServer(fast=True)
    server.start()
    pid = server.pid
    os.kill(state_and_parent(pid)[1], signal.SIGKILL)
    assert eventually(lambda: not is_alive(pid))
    server.close()


async def test_a_pooler_lends_one_connection_to_two_clients_by_the_transaction() -> None:
    with PostgresServer(fast=True) as server, Pooler(server, default_pool_size=1) as pooler:
        first = await asyncpg.connect(pooler.url(), statement_cache_size=0)
        second = await asyncpg.connect(pooler.url(), statement_cache_size=0)
        backends = {await client.fetchval("SELECT pg_backend_pid()") for client in (first, second)}
        assert len(backends) == 1
        async with first.transaction():
            assert await first.fetchval("SELECT pg_backend_pid()") in backends
            with pytest.raises(TimeoutError):
                await second.fetchval("SELECT 1", timeout=0.2)
        await first.close()
        second.terminate()


async def commit_in_a_transaction(client: asyncpg.Connection, word: str) -> None:
    async with client.transaction():
        await client.execute("INSERT INTO kept VALUES ($1)", word)


async def insert_by_itself(client: asyncpg.Connection, word: str) -> None:
    await client.execute("INSERT INTO kept VALUES ($1)", word)


async def insert_by_a_simple_query(client: asyncpg.Connection, word: str) -> None:
    await client.execute(f"INSERT INTO kept VALUES ('{word}')")


async def insert_behind_a_select(client: asyncpg.Connection, word: str) -> None:
    await client.fetch("WITH put AS (INSERT INTO kept VALUES ($1) RETURNING word) SELECT word FROM put", word)


async def copy(client: asyncpg.Connection, word: str) -> None:
    await client.copy_records_to_table("kept", records=[(word,)])


WRITES = [
    commit_in_a_transaction,
    insert_by_itself,
    insert_by_a_simple_query,
    insert_behind_a_select,
    copy,
]


async def test_the_answer_to_a_commit_is_lost_and_the_row_is_there() -> None:
    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        server.sql("CREATE TABLE kept (word text);")
        for number, write in enumerate(WRITES):
            for prepared in (False, True):
                client = await asyncpg.connect(proxy.through(server.url()))
                if prepared:
                    await write(client, "before")
                proxy.swallow_commit_answer()
                assert await client.fetchval("SELECT count(*) FROM kept") >= 0
                word = f"{number} {prepared}"
                with pytest.raises((asyncpg.ConnectionDoesNotExistError, ConnectionError)):
                    await write(client, word)
                assert client.is_closed()
                assert proxy.swallowed == 2 * number + prepared + 1
                assert server.sql(f"SELECT count(*) FROM kept WHERE word = '{word}';") == "1"


async def test_a_rollback_a_failure_and_an_open_transaction_are_no_commit() -> None:
    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        server.sql("CREATE TABLE kept (word text);")
        client = await asyncpg.connect(proxy.through(server.url()))
        proxy.swallow_commit_answer()
        transaction = client.transaction()
        await transaction.start()
        await insert_by_itself(client, "never")
        await transaction.rollback()
        with pytest.raises(asyncpg.UndefinedTableError):
            await client.execute("INSERT INTO nowhere VALUES (1)")
        with pytest.raises(asyncpg.DivisionByZeroError):
            await client.execute("INSERT INTO kept VALUES ('never'); SELECT 1 / 0")
        await client.execute("BEGIN; INSERT INTO kept VALUES ('never'); ROLLBACK")
        assert proxy.swallowed == 0
        proxy.forget()
        await insert_by_itself(client, "yes")
        await client.close()
        assert server.sql("SELECT word FROM kept;") == "yes"


async def test_only_the_matching_answer_is_lost() -> None:
    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        server.sql("CREATE TABLE kept (word text);")
        client = await asyncpg.connect(proxy.through(server.url()))
        await insert_by_itself(client, "before")
        await client.close()
        for matching in (b"INTO kept", b"second word"):
            client = await asyncpg.connect(proxy.through(server.url()))
            prepared = await client.prepare("INSERT INTO kept VALUES ($1)")
            proxy.swallow_answer(matching)
            assert await client.fetchval("SELECT 1") == 1
            with pytest.raises((asyncpg.ConnectionDoesNotExistError, ConnectionError)):
                await prepared.fetch("second word")
        client = await asyncpg.connect(proxy.through(server.url()))
        await insert_by_itself(client, "after")
        await client.close()
        assert proxy.swallowed == 2
        words = server.sql("SELECT string_agg(word, ',') FROM kept;")
        assert words == "before,second word,second word,after"


def test_psycopg_loses_the_answer_to_its_commit_too() -> None:
    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        server.sql("CREATE TABLE kept (word text);")
        with psycopg.connect(proxy.through(server.url())) as client:
            client.execute("INSERT INTO kept VALUES (%s)", ["yes"])
            proxy.swallow_commit_answer()
            with pytest.raises(psycopg.OperationalError):
                client.commit()
        assert proxy.swallowed == 1
        assert server.sql("SELECT word FROM kept;") == "yes"


@pytest.mark.parametrize("extended", [False, True])
def test_psycopg_loses_the_answer_to_its_copy_however_it_asks(extended: bool) -> None:
    def copy(client: psycopg.pq.abc.PGconn) -> None:
        command = b"COPY kept FROM STDIN"
        opened = client.exec_params(command, []) if extended else client.exec_(command)
        assert opened.status == psycopg.pq.ExecStatus.COPY_IN
        client.put_copy_data(b"yes\n")
        client.put_copy_end()
        client.flush()
        while client.is_busy():
            time.sleep(0.005)  # a blocking read would hold the interpreter, and with it the proxy
            client.consume_input()
        assert client.get_result() is not None

    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        server.sql("CREATE TABLE kept (word text);")
        with psycopg.connect(proxy.through(server.url()), autocommit=True) as client:
            copy(client.pgconn)
            assert client.pgconn.get_result() is None
            assert client.execute("SELECT count(*) FROM kept").fetchone() == (1,)
            proxy.swallow_commit_answer()
            with pytest.raises(psycopg.OperationalError):
                copy(client.pgconn)
        assert proxy.swallowed == 1
        assert server.sql("SELECT count(*) FROM kept;") == "2"


def test_not_one_byte_of_a_lost_answer_reaches_the_client() -> None:
    parameters = b"user\0postgres\0database\0postgres\0\0"
    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(struct.pack("!II", 8 + len(parameters), 196608) + parameters)
            answer = b""
            while not answer.endswith(b"Z\0\0\0\x05I"):
                answer += client.recv(65536)
            proxy.swallow_commit_answer()
            query = b"BEGIN; CREATE TABLE kept (word text); SELECT 1; COMMIT\0"
            client.sendall(b"Q" + struct.pack("!I", 4 + len(query)) + query)
            assert client.recv(65536) == b""
        assert server.sql("SELECT count(*) FROM kept;") == "0"


async def test_a_connection_is_frozen_thawed_cut_and_refused() -> None:
    with PostgresServer(fast=True) as server, WireProxy(server.port) as proxy:
        url = proxy.through(server.url())
        client = await asyncpg.connect(url)
        proxy.freeze()
        waiting = asyncio.ensure_future(client.fetchval("SELECT 1"))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        proxy.thaw()
        assert await waiting == 1
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncpg.connect(url)
        assert await client.fetchval("SELECT 2") == 2
        proxy.freeze()
        proxy.cut()
        with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresError, ConnectionError)):
            await client.fetchval("SELECT 3")
        proxy.thaw()
        proxy.accept()
        client = await asyncpg.connect(url)
        assert await client.fetchval("SELECT 4") == 4
        await client.close()
