"""A client without a file descriptor for a connection says so, and does not blame the server."""

import asyncio
import resource
import socket

import pytest

from holdfast.core.errors import Unavailable
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.server_connection import ServerConnection


def test_without_a_descriptor_the_server_is_not_blamed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def told(registry: RemoteRegistry) -> Unavailable:
        with pytest.raises(Unavailable) as caught:
            await registry.status("job-1")
        return caught.value

    async def main() -> tuple[Unavailable, Unavailable]:
        registry = RemoteRegistry(
            ServerConnection((f"http://127.0.0.1:{port}",), None), SystemClock(), SystemIds()
        )
        first = await told(registry)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            return first, await told(registry)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            await registry.close()

    nobody, none_left = asyncio.run(main())

    assert nobody.message.startswith("No holdfast server answers at")
    assert none_left.message.startswith("This process has no file descriptor left for a connection to")
    assert none_left.applied == "no"


@pytest.mark.parametrize("reads", [True, False])
async def test_of_a_lost_response_only_a_change_may_have_been_done(reads: bool) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        address = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        registry = RemoteRegistry(ServerConnection((address,), None), SystemClock(), SystemIds())
        call = registry.list_jobs() if reads else registry.cancel("job-1", actor="user:ana")

        with pytest.raises(Unavailable) as caught:
            await call

        assert caught.value.applied == ("no" if reads else "unknown"), caught.value
        await registry.close()
