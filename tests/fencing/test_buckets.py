"""The fence in a conditional put, on an S3 emulator and on obstore's store in memory."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from holdfast.core.errors import Conflict, Corrupt, Denied, Fenced, Invalid, NotFound, Unavailable
from holdfast.core.limits import NUMBER_MAX
from holdfast.fencing.buckets import METADATA, mark
from holdfast.fencing.fence import Fence, Mark
from tests.fencing.fenced_objects import FORMS, SOURCE, Put, Store, fence, new_path, read
from tests.fencing.proxy import Proxy
from verify.bucket_server import bucket_port, s3_store

BYTES = bytes(range(256))


@pytest.fixture(params=["s3", "memory"])
def store(request: pytest.FixtureRequest) -> Store:
    return s3_store() if request.param == "s3" else MemoryStore()


@pytest.fixture(params=list(FORMS))
def write(request: pytest.FixtureRequest) -> Put:
    return FORMS[request.param]


@pytest.fixture
def path() -> str:
    return new_path()


def test_tokens_that_do_not_fall_write(store: Store, write: Put, path: str) -> None:
    assert asyncio.run(mark(store, path)) is None

    write(store, path, b"first", fence(7))
    assert read(store, path) == (b"first", Mark(SOURCE, 7))
    write(store, path, b"again", fence(7))
    assert read(store, path) == (b"again", Mark(SOURCE, 7))
    write(store, path, b"higher", fence(8))
    assert read(store, path) == (b"higher", Mark(SOURCE, 8))


def test_a_stale_token_writes_nothing(store: Store, write: Put, path: str) -> None:
    write(store, path, b"new", fence(8))

    with pytest.raises(Fenced, match="Token 7 is stale: account-17 has seen token 8") as refused:
        write(store, path, b"old", fence(7))

    assert refused.value.job_id == "job-1"
    assert read(store, path) == (b"new", Mark(SOURCE, 8))


def test_a_token_of_another_source_is_a_conflict(store: Store, write: Put, path: str) -> None:
    write(store, path, b"ours", fence(7))

    with pytest.raises(Conflict, match=r"has seen tokens of lock:account-17, .* of job:job-1"):
        write(store, path, b"theirs", fence(9, lock=None))

    assert read(store, path) == (b"ours", Mark(SOURCE, 7))


def test_the_highest_tokens_are_told_apart(store: Store, write: Put, path: str) -> None:
    write(store, path, b"a", fence(NUMBER_MAX - 1))
    write(store, path, b"b", fence(NUMBER_MAX))

    with pytest.raises(Fenced, match=str(NUMBER_MAX)):
        write(store, path, b"c", fence(NUMBER_MAX - 1))

    assert read(store, path) == (b"b", Mark(SOURCE, NUMBER_MAX))


@pytest.mark.parametrize("body", [b"", BYTES, BYTES * 40_000], ids=["none", "all", "10 MB"])
def test_any_bytes_go_there_and_back(store: Store, write: Put, path: str, body: bytes) -> None:
    write(store, path, body, fence(7))
    write(store, path, body, fence(8))

    assert read(store, path) == (body, Mark(SOURCE, 8))


def test_an_object_of_somebody_else_is_replaced_and_marked(store: Store, write: Put, path: str) -> None:
    obstore.put(store, path, b"theirs")
    assert asyncio.run(mark(store, path)) is None

    write(store, path, b"ours", fence(7))

    assert read(store, path) == (b"ours", Mark(SOURCE, 7))


def test_the_longest_ids_fit(store: Store, write: Put, path: str) -> None:
    long = Fence(resource="r" * 128, token=NUMBER_MAX, job_id="j" * 128, lock=":" * 128)

    write(store, path, b"a", long)

    assert asyncio.run(mark(store, path)) == Mark(f"lock:{':' * 128}", NUMBER_MAX)


def test_other_metadata_are_kept(store: Store, write: Put, path: str) -> None:
    given = {"Content-Type": "application/json", "colour": "blue", METADATA: "99 lock:x y"}

    write(store, path, b"{}", fence(7), attributes=given)

    found = obstore.get(store, path).attributes
    assert (found["Content-Type"], found["colour"]) == ("application/json", "blue")
    assert found[METADATA].startswith(f"7 {SOURCE} ")


@pytest.mark.parametrize("stamp", ["", "7", "seven lock:x id", "7 lock:x id more"])
def test_a_mark_that_cannot_be_read_is_corrupt(store: Store, write: Put, path: str, stamp: str) -> None:
    obstore.put(store, path, b"a", attributes={METADATA: stamp})

    with pytest.raises(Corrupt, match="is not a holdfast mark"):
        write(store, path, b"b", fence(7))

    assert bytes(obstore.get(store, path).bytes()) == b"a"


@pytest.mark.parametrize(
    ("place", "body", "one"),
    [
        ("a", b"a", fence(0)),
        ("a", b"a", fence(NUMBER_MAX + 1)),
        ("a", b"a", Fence(resource="a b", token=7, job_id="j")),
        ("", b"a", fence(7)),
        ("/", b"a", fence(7)),
        ("a//b", b"a", fence(7)),
        ("../a", b"a", fence(7)),
        ("a", "text", fence(7)),
        ("a", [b"a"], fence(7)),
    ],
)
def test_what_makes_no_sense_is_invalid_and_not_written(
    write: Put, place: str, body: bytes, one: Fence
) -> None:
    store = MemoryStore()

    with pytest.raises(Invalid):
        write(store, place, body, one)

    assert list(store.list()) == []


def test_a_store_without_conditional_puts_is_invalid(write: Put, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no conditional put"):
        write(LocalStore(tmp_path), "a", b"a", fence(7))


def test_a_bucket_that_is_not_there_is_not_found(write: Put) -> None:
    with pytest.raises(NotFound, match="no such bucket"):
        write(s3_store("no-such-bucket"), "a", b"a", fence(7))


def test_a_server_that_is_away_is_unavailable_and_nothing_was_written(write: Put, path: str) -> None:
    with Proxy(bucket_port()) as proxy:
        port = proxy.port

    with pytest.raises(Unavailable) as refused:
        write(s3_store(port=port), path, b"a", fence(7))

    assert refused.value.applied == "no"


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None: ...


def test_a_store_that_lets_us_not_in_is_denied(write: Put) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with pytest.raises(Denied):
                write(s3_store(port=server.server_address[1]), "a", b"a", fence(7))
        finally:
            server.shutdown()
            thread.join()
