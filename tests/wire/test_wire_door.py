"""By which names a server without keys answers: those of this machine, written as the standards say."""

from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.door import refused

PIECES = (
    "http", "https", "://", "//", "localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", "::1",
    "evil.com",
    ":", "@", "1", "8080", "/", "?", "#", " ", "\t", ".", "\\", "%00", "[", "]", ",", "\n",
)  # fmt: skip


def _let_in(name: str, value: str) -> bool:
    headers = [(name.encode(), value.encode())]
    scope = {"raw_path": b"/v1/now", "query_string": b"", "headers": headers}
    return refused(scope, guarded=False) is None


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


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]", "[::1]:1"]
)
def test_local_names_are_let_in(host: str) -> None:
    assert _let_in("host", host)
    assert _let_in("origin", f"http://{host}")
    assert _let_in("origin", f"https://{host}")
