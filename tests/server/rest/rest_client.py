"""A client of REST in the standard library: requests, checks of every refusal, and streams that can be cut
anywhere."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from msgspec import Struct

from tests.server.raw_http_client import JSON, LEAK, WAIT_SECONDS, RawResponse, ThreadedServer

PROBLEM = "application/problem+json"
MEMBERS = {"type", "title", "status", "detail", "advice", "job_id", "version", "applied"}


class RestClient:
    """One caller of a server, with a key or without."""

    def __init__(
        self, server: ThreadedServer, key: str | None = None, *, seconds: float = WAIT_SECONDS
    ) -> None:
        self.server = server
        self.seconds = seconds
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawResponse:
        """Send any request, and return its whole response."""
        told = self.headers | ({} if body is None else {"content-type": JSON}) | dict(headers or {})
        line = HTTPConnection(*self.server.address, timeout=self.seconds)
        try:
            line.request(method, path, body, told)
            return _answer(line.getresponse())
        finally:
            line.close()

    def get(self, path: str, **headers: str) -> RawResponse:
        return self.ask("GET", path, headers=_named(headers))

    def post(self, path: str, asked: object = None, **headers: str) -> RawResponse:
        """Send a change in JSON; headers by keyword, with `_` for `-`."""
        body = None if asked is None else json.dumps(asked).encode()
        return self.ask("POST", path, body, _named(headers))

    @contextmanager
    def stream(self, path: str, last: str | None = None) -> "Iterator[EventStream]":
        """A stream that is open until the block ends, however far it was read."""
        told = self.headers | ({} if last is None else {"last-event-id": last})
        line = HTTPConnection(*self.server.address, timeout=self.seconds)
        line.request("GET", path, headers=told)
        response = line.getresponse()
        try:
            yield EventStream(response)
        finally:
            response.close()
            line.close()


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _answer(response: HTTPResponse) -> RawResponse:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return RawResponse(response.status, headers, response.read())


class StreamEvent(Struct, frozen=True):
    """One event, or (without a name) one comment."""

    id: str = ""
    name: str = ""
    data: str = ""
    comment: str = ""
    retry: str = ""

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.data))


class EventStream:
    """A stream of server-sent events; or the response, when it was refused."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.kind = response.getheader("content-type", "")

    def answer(self) -> RawResponse:
        return _answer(self._response)

    def __iter__(self) -> Iterator[StreamEvent]:
        fields: dict[str, str] = {}
        while line := self._response.readline().decode():
            name, colon, value = line.removesuffix("\n").partition(":")
            if colon:
                assert name not in fields, line
                fields[_FIELDS[name]] = value.removeprefix(" ")
            elif fields:
                yield StreamEvent(**fields)
                fields = {}
        assert not fields, fields

    def events(self) -> Iterator[StreamEvent]:
        """Return the events of jobs: without comments, and without ids that only say where to go on."""
        return (one for one in self if one.id and one.data)


_FIELDS = {"": "comment", "id": "id", "event": "name", "data": "data", "retry": "retry"}


def result_of(answer: RawResponse) -> Any:  # noqa: ANN401
    """Return the result of a call, which must have succeeded."""
    assert 200 <= answer.status < 300, answer
    assert answer.headers["content-type"] == JSON
    return json.loads(answer.body)


def problem(answer: RawResponse, status: int, words: str = "") -> dict[str, Any]:
    """Check that a refusal has this status, these words and an advice, and shows nothing of the inside."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == PROBLEM, answer
    told = dict(json.loads(answer.body))
    assert set(told) == MEMBERS
    assert told["status"] == status
    assert len(told["detail"]) > 10, told
    assert len(told["advice"]) > 10, told
    assert words in told["detail"], told
    assert not LEAK.search(answer.body.decode()), told
    assert len(answer.body) < 4096
    return told
