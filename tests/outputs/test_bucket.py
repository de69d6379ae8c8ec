"""An output store in a bucket: what is denied, gone or silent is never an object that is not there."""

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.core.errors import Denied, HoldfastError, Unavailable
from holdfast.outputs.identity import IDENTITY
from holdfast.outputs.url import open_outputs
from holdfast.ports import Outputs
from holdfast.testing.outputs_contract import everything, read_whole
from tests.outputs.bucket_servers import (
    AZURE,
    GOOGLE,
    S3,
    Emulator,
    azure_environment,
    azurite_port,
    s3_environment,
)
from verify.postgres_server import free_port

BUCKET = "comes-and-goes"


@pytest.fixture(params=[S3, AZURE, GOOGLE], ids=lambda emulator: emulator.scheme)
def emulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    found: Emulator = request.param
    use(monkeypatch, found.environment())
    return found


def use(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def every_question(outputs: Outputs) -> Iterator[Awaitable[object]]:
    yield outputs.check_available()
    yield outputs.get("a")
    yield outputs.get_many(["b", "a"])
    yield outputs.digests(["a"])
    yield outputs.delete("a")
    yield everything(outputs)
    yield read_whole(outputs, "a")
    yield outputs.put("a", b"x")


async def test_a_bucket_that_is_not_there_is_no_empty_store(emulator: Emulator) -> None:
    with pytest.raises(Unavailable, match="is not an output store"):
        await open_outputs(f"{emulator.scheme}://absent/outputs", create=False)
    with pytest.raises(Unavailable, match="There is no such bucket"):
        await open_outputs(f"{emulator.scheme}://absent/outputs", create=True)


async def test_a_bucket_that_is_removed_is_no_empty_store(emulator: Emulator) -> None:
    emulator.make_bucket(BUCKET)
    outputs = await open_outputs(emulator.address(BUCKET), create=True)
    assert await outputs.get("a") is None
    await outputs._store.delete_async(IDENTITY)  # type: ignore[attr-defined]
    emulator.remove_bucket(BUCKET)

    for question in every_question(outputs):
        with pytest.raises(Unavailable):
            await question


async def test_a_whole_bucket_can_be_a_store(emulator: Emulator) -> None:
    emulator.make_bucket(f"whole-{emulator.scheme}")
    url = f"{emulator.scheme}://whole-{emulator.scheme}/"
    outputs = await open_outputs(url, create=True)
    await outputs.put("a/b", b"x")

    assert outputs.place == url.rstrip("/")
    assert await everything(outputs) == [("a/b", 1)]
    assert (await open_outputs(outputs.place, create=False)).store_id == outputs.store_id


def test_a_wrong_key_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, azure_environment(azurite_port(), key="d3Jvbmc="))

    for create in (True, False):
        with pytest.raises(Denied, match="Access to az://"):
            asyncio.run(open_outputs(AZURE.address(), create=create))


async def test_a_server_that_is_not_there_is_told(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = await open_outputs(emulator.address(), create=True)
    url, port = emulator.address(), free_port()
    away = {name: _elsewhere(value, port) for name, value in emulator.environment().items()}
    use(monkeypatch, away)

    for create in (True, False):
        with pytest.raises(Unavailable, match=rf"{url}/{IDENTITY} does not answer"):
            await open_outputs(url, create=create)
    await outputs.check_available()


def _elsewhere(value: str, port: int) -> str:
    scheme, slashes, rest = value.partition("://127.0.0.1:")
    return f"{scheme}{slashes}{port}{rest.lstrip('0123456789')}" if slashes else value


# A server that says no in a moment: to everything that does not ask for the identity of the store.


@contextmanager
def refusing(status: int, code: str) -> Iterator[int]:
    class Refusing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            ours = self.path.endswith(IDENTITY)
            body = (
                b'{"holdfast": "outputs", "layout": 1, "store_id": "s-1"}'
                if ours
                else f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            )
            self.send_response(200 if ours else status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Mon, 16 Nov 2026 13:46:39 GMT")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815  # as the base class wants them

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (403, "AccessDenied", Denied, r"s3:ListBucket"),
        (401, "Unauthorized", Denied, "is denied"),
        (404, "NoSuchBucket", Unavailable, "is not an output store|no such bucket"),
        (400, "Odd", Unavailable, "does not answer"),
        (503, "SlowDown", Unavailable, "does not answer"),
    ],
)
async def test_what_a_bucket_answers_instead_of_not_there_is_not_taken_for_it(
    status: int,
    code: str,
    kind: type[HoldfastError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with refusing(status, code) as port:
        use(monkeypatch, s3_environment(port))
        outputs = await open_outputs("s3://some/where", create=False)
        assert outputs.store_id == "s-1"
        if status == 404:
            monkeypatch.setattr(f"{__name__}.IDENTITY", "x")
        for question in (
            outputs.get("a"),
            outputs.digests(["a"]),
            outputs.put("a", b""),
            outputs.delete("a"),
            read_whole(outputs, "a"),
            everything(outputs),
        ):
            with pytest.raises(kind, match=words):
                await question
