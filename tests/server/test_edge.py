"""By which names and from which pages a server without keys is called: those of this machine alone."""

import asyncio
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.access import Scope
from holdfast.server.context import ServerSettings
from holdfast.server.edge import rejection
from tests.server.served_registry import ServedRegistry, open_served

PIECES = (
    "http", "https", "://", "//", "localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", "::1",
    "evil.com",
    ":", "@", "1", "8080", "/", "?", "#", " ", "\t", ".", "\\", "%00", "[", "]", ",", "\n",
)  # fmt: skip


def _let_in(name: str, value: str) -> bool:
    headers = [(name.encode(), value.encode())]
    scope = {"raw_path": b"/v1/now", "query_string": b"", "headers": headers}
    return rejection(scope, guarded=False) is None


def _local(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join))
def test_only_a_local_name_and_nothing_else_is_let_in(text: str) -> None:
    if _let_in("origin", text):
        parts = urlsplit(text)
        assert parts.scheme in ("http", "https")
        assert _local(parts.hostname)
        assert text == f"{text.partition('://')[0]}://{parts.netloc}"
        assert "@" not in text
    if _let_in("host", text):
        parts = urlsplit(f"//{text}")
        assert _local(parts.hostname)
        assert (parts.netloc, parts.username) == (text, None)


@pytest.mark.parametrize(
    "text", ["http://evil.com//localhost", "localhost:1@evil.com", "http://localhost@evil.com"]
)
def test_a_local_name_somewhere_in_it_is_not_enough(text: str) -> None:
    assert not _let_in("origin", text)
    assert not _let_in("host", text)


@pytest.mark.parametrize("host", ["localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]", "[::1]:1"])
def test_local_names_are_let_in(host: str) -> None:
    assert _let_in("host", host)
    assert _let_in("origin", f"http://{host}")
    assert _let_in("origin", f"https://{host}")


async def status(url: str, key: str | None = None, **headers: str) -> int:
    """How a call with these headers is answered."""
    place = urlsplit(url)
    told = {"host": place.netloc, "content-type": "application/json", "content-length": "2"}
    told |= headers | ({"authorization": f"Bearer {key}"} if key else {})
    lines = [
        "POST /holdfast.v1.RegistryService/Now HTTP/1.1",
        *(f"{k}: {v}" for k, v in told.items()),
    ]
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write("\r\n".join([*lines, "", "{}"]).encode())
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(answer.split()[1])


async def test_without_keys_no_page_of_a_browser_can_reach_the_server(
    served: ServedRegistry,
) -> None:
    url = served.server.url
    for host in ("localhost", "127.0.0.1", "127.0.0.1:1", "[::1]:8080"):
        assert (host, await status(url, host=host)) == (host, 200)
    for host in (
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "10.1.2.3",
        "x",
    ):
        assert (host, await status(url, host=host)) == (host, 403)
    for origin in ("http://evil.example", "https://localhost.evil.example:8080", "null"):
        assert (origin, await status(url, origin=origin)) == (origin, 403)


async def test_with_keys_it_does_not_matter_by_what_name_a_server_is_called() -> None:
    async with open_served(ServerSettings(keys=True)) as served:
        _, key = await served.registry.create_key(name="a", scopes=[Scope.OBSERVE], actor="user:r")
        evil = {"host": "jobs.example", "origin": "http://evil.example"}
        assert await status(served.server.url, key, **evil) == 200
        assert await status(served.server.url, **evil) == 401
