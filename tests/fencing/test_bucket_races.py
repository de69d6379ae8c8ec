"""Fenced objects when answers are lost, when others write in between, and when all write at once."""

import asyncio
import random
import threading
from collections.abc import Callable
from itertools import count

import obstore
import pytest
from obstore.exceptions import PreconditionError
from obstore.store import MemoryStore

from holdfast.core.errors import Fenced, HoldfastError, Unavailable
from holdfast.fencing.buckets import METADATA, TRIES, mark, put, put_blocking
from holdfast.fencing.fence import Mark
from tests.fencing.fenced_objects import FORMS, SOURCE, Put, Store, fence, new_path, read
from tests.fencing.proxy import Proxy
from verify.bucket_server import PLAIN, VERSIONED, bucket_port, s3_store, versions


@pytest.fixture(params=list(FORMS))
def write(request: pytest.FixtureRequest) -> Put:
    return FORMS[request.param]


@pytest.fixture
def path() -> str:
    return new_path()


def test_the_emulator_keeps_every_increment_by_compare_and_swap(path: str) -> None:
    writers, rounds = 8, 25
    obstore.put(s3_store(), path, b"0", mode="create")

    def add() -> None:
        own, landed = s3_store(), 0
        for _ in range(writers * rounds * 10):
            found = obstore.get(own, path)
            value = int(bytes(found.bytes())) + 1
            try:
                obstore.put(own, path, b"%d" % value, mode={"e_tag": found.meta["e_tag"]})
            except PreconditionError:
                continue
            landed += 1
            if landed == rounds:
                return

    threads = [threading.Thread(target=add) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert bytes(obstore.get(s3_store(), path).bytes()) == b"%d" % (writers * rounds)


@pytest.mark.parametrize("before", [None, 6], ids=["created", "replaced"])
def test_a_lost_answer_is_not_taken_for_a_conflict(write: Put, path: str, before: int | None) -> None:
    """Where the client sends again by itself, the store refuses our own write to us."""
    if before:
        put_blocking(s3_store(), path, b"before", fence(before))
    puts: list[bytes] = []

    with Proxy(bucket_port()) as proxy:
        proxy.before = lambda request: puts.append(request) if request[:4] == b"PUT " else None
        proxy.lose = b"PUT "
        write(s3_store(port=proxy.port, retries=3), path, b"ours", fence(7))

    assert (proxy.lost, len(puts)) == (1, 2)
    assert read(s3_store(), path) == (b"ours", Mark(SOURCE, 7))


def test_without_retries_a_lost_answer_is_unknown_and_can_be_put_again(write: Put, path: str) -> None:
    with Proxy(bucket_port()) as proxy:
        store = s3_store(port=proxy.port)
        proxy.lose = b"PUT "
        with pytest.raises(Unavailable) as refused:
            write(store, path, b"ours", fence(7))
        landed = read(s3_store(), path)
        write(store, path, b"ours", fence(7))

    assert refused.value.applied == "unknown"
    assert landed == read(s3_store(), path) == (b"ours", Mark(SOURCE, 7))


def once(act: Callable[[], None]) -> Callable[[bytes], None]:
    """Act when the first put has been asked for and before it goes on: its comparison is done."""
    acts = [act]

    def before(request: bytes) -> None:
        if request.startswith(b"PUT ") and acts:
            acts.pop()()

    return before


@pytest.mark.parametrize("there", [True, False], ids=["replaced", "created"])
def test_who_is_overtaken_between_comparing_and_writing_is_fenced(write: Put, path: str, there: bool) -> None:
    if there:
        put_blocking(s3_store(), path, b"before", fence(6))

    with Proxy(bucket_port()) as proxy:
        proxy.before = once(lambda: put_blocking(s3_store(), path, b"owner", fence(8)))
        with pytest.raises(Fenced, match="Token 7 is stale: account-17 has seen token 8"):
            write(s3_store(port=proxy.port), path, b"zombie", fence(7))

    assert read(s3_store(), path) == (b"owner", Mark(SOURCE, 8))


def test_an_owner_gets_past_stale_writers_and_deletions(write: Put, path: str) -> None:
    put_blocking(s3_store(), path, b"before", fence(6))

    with Proxy(bucket_port()) as proxy:
        proxy.before = once(lambda: put_blocking(s3_store(), path, b"zombie", fence(7)))
        write(s3_store(port=proxy.port), path, b"owner", fence(8))
        assert read(s3_store(), path) == (b"owner", Mark(SOURCE, 8))

        proxy.before = once(lambda: obstore.delete(s3_store(), path))
        write(s3_store(port=proxy.port), path, b"owner again", fence(8))
    assert read(s3_store(), path) == (b"owner again", Mark(SOURCE, 8))


def test_who_never_gets_a_turn_is_told_so(write: Put, path: str) -> None:
    numbers = count()

    def other(request: bytes) -> None:
        if request.startswith(b"PUT "):
            put_blocking(s3_store(), path, b"other %d" % next(numbers), fence(7))

    with Proxy(bucket_port()) as proxy:
        proxy.before = other
        with pytest.raises(Unavailable, match=f"{TRIES} times in a row"):
            write(s3_store(port=proxy.port), path, b"ours", fence(7))

    assert next(numbers) == TRIES
    assert read(s3_store(), path)[0] == b"other %d" % (TRIES - 1)


@pytest.mark.parametrize("bucket", [PLAIN, VERSIONED])
def test_limit_on_s3_the_very_same_bytes_let_a_stale_put_land(path: str, bucket: str) -> None:
    """The limit that the module states. Something of the token in the bytes takes it away."""
    direct = s3_store(bucket)

    def landed(bytes_of_owner: bytes) -> tuple[bytes, Mark | None]:
        put_blocking(direct, path, b"same bytes", fence(6))
        with Proxy(bucket_port()) as proxy:
            proxy.before = once(lambda: put_blocking(direct, path, bytes_of_owner, fence(8)))
            try:
                put_blocking(s3_store(bucket, proxy.port), path, b"zombie", fence(7))
            except Fenced:
                return read(direct, path)
        found = read(direct, path)
        obstore.delete(direct, path)
        return found

    assert landed(b"same bytes") == (b"zombie", Mark(SOURCE, 7))
    assert landed(b"same bytes, written by 8") == (b"same bytes, written by 8", Mark(SOURCE, 8))


def test_where_every_write_has_a_number_the_very_same_bytes_let_nothing_land(path: str) -> None:
    store = MemoryStore()
    put_blocking(store, path, b"same bytes", fence(6))
    seen = obstore.get(store, path, options={"head": True}).meta["e_tag"]
    put_blocking(store, path, b"same bytes", fence(8))

    with pytest.raises(PreconditionError):
        obstore.put(store, path, b"zombie", mode={"e_tag": seen})


def raced(store: Store, path: str, *, seed: int) -> tuple[list[int], list[int]]:
    """Eight writers with random tokens at once: the tokens that were accepted, and all."""
    chance = random.Random(seed)
    plans = [chance.sample(range(1, 1000), 10) for _ in range(8)]
    accepted: list[int] = []
    failed: list[HoldfastError] = []
    together = threading.Barrier(len(plans))

    def act(tokens: list[int]) -> None:
        together.wait(60)
        for token in tokens:
            try:
                put_blocking(store, path, b"%d" % token, fence(token))
                accepted.append(token)
            except Fenced:
                pass
            except HoldfastError as error:
                failed.append(error)

    threads = [threading.Thread(target=act, args=(tokens,)) for tokens in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    return accepted, [token for tokens in plans for token in tokens]


@pytest.mark.parametrize("opened", [s3_store, MemoryStore])
def test_the_highest_token_wins_whoever_races(opened: Callable[[], Store], path: str) -> None:
    store = opened()
    accepted, tokens = raced(store, path, seed=7)

    assert max(accepted) == max(tokens)
    assert read(store, path) == (b"%d" % max(tokens), Mark(SOURCE, max(tokens)))


def test_no_version_goes_back_whoever_races(path: str) -> None:
    store = s3_store(VERSIONED)
    accepted, _ = raced(store, path, seed=8)

    found = [obstore.get(store, path, options={"version": v}) for v in versions(path)]
    applied = [int(bytes(version.bytes())) for version in found]
    assert applied == sorted(applied)
    assert sorted(accepted) == applied
    assert [int(v.attributes[METADATA].split()[0]) for v in found] == applied


@pytest.mark.parametrize("opened", [s3_store, MemoryStore])
async def test_many_tasks_at_once_keep_the_order(opened: Callable[[], Store], path: str) -> None:
    store = opened()
    tokens = random.Random(9).sample(range(1, 1000), 12)

    puts = (put(store, path, b"%d" % token, fence(token)) for token in tokens)
    answers = await asyncio.gather(*puts, return_exceptions=True)

    assert {type(answer) for answer in answers} <= {type(None), Fenced}
    assert answers[tokens.index(max(tokens))] is None
    body = bytes(obstore.get(store, path).bytes())
    assert (body, await mark(store, path)) == (b"%d" % max(tokens), Mark(SOURCE, max(tokens)))
