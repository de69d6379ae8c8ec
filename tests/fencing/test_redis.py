"""The fence in a Redis script, on a real Redis."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.core.limits import NUMBER_MAX
from holdfast.fencing.fence import Fence
from holdfast.fencing.redis import MARK, Command, execute, execute_blocking
from tests.fencing.proxy import Proxy
from verify.redis_server import redis_port

Execute = Callable[..., list[Any]]
BYTES = bytes(range(256))


def fence(token: int, lock: str | None = "account-17") -> Fence:
    return Fence(resource="account-17", token=token, job_id="job-1", lock=lock)


def executed(one: Fence, *commands: Command) -> list[Any]:
    """What `execute` answers, with a client of its own."""

    async def call() -> list[Any]:
        async with redis.asyncio.Redis(port=redis_port()) as client:
            return await execute(client, one, *commands)

    return asyncio.run(call())


def executed_blocking(one: Fence, *commands: Command) -> list[Any]:
    with redis.Redis(port=redis_port()) as client:
        return execute_blocking(client, one, *commands)


@pytest.fixture(params=[executed, executed_blocking], ids=["async", "blocking"])
def run_commands(request: pytest.FixtureRequest) -> Execute:
    found: Execute = request.param
    return found


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_port()) as found:
        found.flushall()
        yield found


def test_tokens_that_do_not_fall_write(client: redis.Redis, run_commands: Execute) -> None:
    answers = run_commands(fence(7), ("SET", "balance", 17), ("GET", "balance"), ("GET", "none"))
    again = run_commands(fence(7), ("INCRBY", "balance", 3))
    higher = run_commands(fence(8), ("RPUSH", "log", b"a", b"b"), ("LRANGE", "log", 0, -1))

    assert answers == [b"OK", b"17", None]
    assert again == [20]
    assert higher == [2, [b"a", b"b"]]
    assert client.hgetall(f"{MARK}account-17") == {b"source": b"lock:account-17", b"token": b"8"}


def test_a_stale_token_writes_nothing(client: redis.Redis, run_commands: Execute) -> None:
    run_commands(fence(8), ("SET", "balance", "new"))

    with pytest.raises(Fenced, match="Token 7 is stale: account-17 has seen token 8") as refused:
        run_commands(fence(7), ("SET", "balance", "old"), ("SET", "other", "old"))

    assert refused.value.job_id == "job-1"
    assert client.get("balance") == b"new"
    assert client.exists("other") == 0
    assert client.hget(f"{MARK}account-17", "token") == b"8"


def test_a_token_of_another_source_is_a_conflict(client: redis.Redis, run_commands: Execute) -> None:
    run_commands(fence(7), ("SET", "balance", "ours"))

    with pytest.raises(Conflict, match=r"has seen tokens of lock:account-17, .* of job:job-1"):
        run_commands(fence(9, lock=None), ("SET", "balance", "theirs"))

    assert client.get("balance") == b"ours"
    assert client.hget(f"{MARK}account-17", "source") == b"lock:account-17"


@pytest.mark.parametrize(("lower", "higher"), [(NUMBER_MAX - 1, NUMBER_MAX), (9, 10), (99, 100)])
def test_tokens_are_compared_as_whole_numbers(
    client: redis.Redis, run_commands: Execute, lower: int, higher: int
) -> None:
    run_commands(fence(lower), ("SET", "balance", "a"))
    run_commands(fence(higher), ("SET", "balance", "b"))

    with pytest.raises(Fenced, match=str(higher)):
        run_commands(fence(lower), ("SET", "balance", "c"))

    assert client.get("balance") == b"b"
    assert client.hget(f"{MARK}account-17", "token") == str(higher).encode()


def test_each_resource_has_its_own_mark(client: redis.Redis, run_commands: Execute) -> None:
    run_commands(fence(8), ("SET", "balance", "a"))
    other = Fence(resource="account-18", token=3, job_id="job-2")

    assert run_commands(other, ("SET", "other", "b")) == [b"OK"]


def test_any_bytes_go_there_and_back(client: redis.Redis, run_commands: Execute) -> None:
    answers = run_commands(fence(7), ("SET", BYTES, BYTES), ("GET", BYTES))

    assert answers == [b"OK", BYTES]
    assert client.get(BYTES) == BYTES


def test_a_script_the_server_has_forgotten_is_sent_again(client: redis.Redis, run_commands: Execute) -> None:
    run_commands(fence(7), ("SET", "balance", "a"))
    client.script_flush()

    assert run_commands(fence(7), ("SET", "balance", "b")) == [b"OK"]

    client.script_flush()
    with pytest.raises(Fenced):
        run_commands(fence(6), ("SET", "balance", "c"))
    assert client.get("balance") == b"b"


def test_a_command_that_is_refused_ends_the_rest_and_leaves_the_mark(
    client: redis.Redis, run_commands: Execute
) -> None:
    client.set("text", "no number")

    with pytest.raises(redis.ResponseError, match="not an integer"):
        run_commands(fence(7), ("SET", "one", 1), ("INCR", "text"), ("SET", "two", 2))

    assert (client.get("one"), client.get("two")) == (b"1", None)
    with pytest.raises(Fenced):
        run_commands(fence(6), ("SET", "one", "stale"))


def test_no_commands_only_raise_the_mark(client: redis.Redis, run_commands: Execute) -> None:
    assert run_commands(fence(7)) == []
    with pytest.raises(Fenced):
        run_commands(fence(6))


@pytest.mark.parametrize(
    ("one", "commands"),
    [
        (fence(0), [("SET", "a", 1)]),
        (fence(NUMBER_MAX + 1), [("SET", "a", 1)]),
        (Fence(resource="a b", token=7, job_id="j"), [("SET", "a", 1)]),
        (fence(7), [()]),
        (fence(7), [("SET", "a", 1), []]),
        (fence(7), ["FLUSHALL"]),
        (fence(7), [b"FLUSHALL"]),
    ],
)
def test_what_makes_no_sense_is_invalid_and_never_sent(
    client: redis.Redis, run_commands: Execute, one: Fence, commands: list[Command]
) -> None:
    with pytest.raises(Invalid):
        run_commands(one, *commands)

    assert client.dbsize() == 0


def test_answers_may_be_text(client: redis.Redis) -> None:
    with redis.Redis(port=redis_port(), decode_responses=True) as texts:
        assert execute_blocking(texts, fence(8), ("SET", "a", "é"), ("GET", "a")) == ["OK", "é"]
        with pytest.raises(Fenced, match="has seen token 8"):
            execute_blocking(texts, fence(7))
        with pytest.raises(Conflict, match="lock:account-17"):
            execute_blocking(texts, fence(9, lock=None))


def test_what_is_applied_never_goes_back_whoever_races(client: redis.Redis) -> None:
    chance = random.Random(7)
    plans = [[chance.randrange(1, 1000) for _ in range(25)] for _ in range(8)]
    accepted: list[int] = []
    together = threading.Barrier(len(plans))

    def write(tokens: list[int]) -> None:
        with redis.Redis(port=redis_port()) as own:
            together.wait(60)
            for token in tokens:
                try:
                    execute_blocking(own, fence(token), ("RPUSH", "applied", token))
                    accepted.append(token)
                except Fenced:
                    pass

    threads = [threading.Thread(target=write, args=(tokens,)) for tokens in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    applied = [int(token) for token in client.lrange("applied", 0, -1)]
    assert applied == sorted(applied)
    assert sorted(accepted) == applied
    assert applied[-1] == max(max(tokens) for tokens in plans)


async def test_many_tasks_on_one_client_keep_the_order(client: redis.Redis) -> None:
    tokens = random.Random(8).sample(range(1, 1000), 100)
    limit = asyncio.Semaphore(16)

    async with redis.asyncio.Redis(port=redis_port(), max_connections=16) as own:

        async def write(token: int) -> list[Any]:
            async with limit:
                return await execute(own, fence(token), ("RPUSH", "applied", token))

        answers = await asyncio.gather(*map(write, tokens), return_exceptions=True)

    accepted = [t for t, a in zip(tokens, answers, strict=True) if isinstance(a, list)]
    assert {type(a) for a in answers} == {list, Fenced}
    assert [int(token) for token in client.lrange("applied", 0, -1)] == sorted(accepted)


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (3, 2)])
def test_limit_a_client_that_sends_again_may_run_commands_twice(
    client: redis.Redis, retries: int, runs: int
) -> None:
    execute_blocking(client, fence(7))

    with Proxy(redis_port()) as proxy:
        retry = Retry(NoBackoff(), retries)
        with redis.Redis(port=proxy.port, retry=retry) as lossy:
            proxy.lose = b"EVALSHA"
            if retries:
                assert execute_blocking(lossy, fence(7), ("INCR", "count")) == [runs]
            else:
                with pytest.raises(redis.ConnectionError):
                    execute_blocking(lossy, fence(7), ("INCR", "count"))
        assert proxy.lost == 1

    assert client.get("count") == str(runs).encode()
