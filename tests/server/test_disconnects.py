"""A client that has left: its response cannot be sent; that is not a fault, and nothing of it is kept."""

import asyncio
import gc
import weakref
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.ports import JobFilter, JobPage
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.server.limits import PIPELINED_MAX
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from tests.server.running_server import serving
from tests.server.server_process import until


class Answer:
    """What an answer keeps in hand: one can know whether it is still there."""


def call(*, left: bool) -> bool:
    """Answer a call whose connection cannot be written to. Whether the answer is kept after that."""
    there: list[weakref.ref[Answer]] = []

    async def send(_: dict[str, Any]) -> None:
        part = Answer()
        there.append(weakref.ref(part))
        await asyncio.sleep(0)
        error = RuntimeError("the handler is closed")
        raise error

    async def main() -> None:
        registry = LocalRegistry(MemoryStore(SystemClock(), SystemIds()), SystemIds())
        async with serving(registry, ServerSettings()) as served:
            await served.app(scope(left=left), heard, send)
        await registry.close()

    gc.disable()
    try:
        asyncio.run(main())
        return there[0]() is not None
    finally:
        gc.enable()


def scope(*, left: bool) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "root_path": "",
        "path": "/holdfast.v1.RegistryService/Now",
        "raw_path": b"/holdfast.v1.RegistryService/Now",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "state": {"client_gone": lambda: left},
    }


async def heard() -> dict[str, Any]:
    return {"type": "http.request", "body": b"{}", "more_body": False}


def test_what_cannot_be_sent_to_a_client_that_has_left_is_let_go() -> None:
    assert call(left=True) is False


def test_what_cannot_be_sent_to_a_client_that_is_there_is_a_fault() -> None:
    with pytest.raises(RuntimeError, match="closed"):
        call(left=False)


class Waiting(MemoryStore):
    """A store whose listings never end."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), SystemIds())
        self.under_way = 0

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        self.under_way += 1
        try:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")
        finally:
            self.under_way -= 1


async def test_a_call_hears_that_its_client_has_left_though_others_were_sent_behind_it() -> None:
    store = Waiting()
    registry = LocalRegistry(store, SystemIds())
    async with serving(registry, ServerSettings()) as served, asyncio.timeout(20):
        place = urlsplit(served.url)
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        asked = b"GET /v1/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n"
        writer.write(asked)
        await until(lambda: store.under_way == 1)

        writer.write(asked * (2 * PIPELINED_MAX))  # too many: the server ends the connection
        await until(lambda: store.under_way == 0)
        writer.close()
    await registry.close()
