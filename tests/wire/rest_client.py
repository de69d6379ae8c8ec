"""A client of REST that anybody could write: requests, what every refusal must be like, and streams that
can be cut anywhere."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from msgspec import Struct
from wire_bad_client import JSON, LEAK, WAIT_SECONDS, Answer, Peer

PROBLEM = "application/problem+json"
MEMBERS = {"type", "title", "status", "detail", "advice", "job_id", "version", "applied"}


class Rest:
    """One caller of a server, with a key or without."""

    def __init__(
        self, server: Peer, key: str | None = None, *, seconds: float = WAIT_SECONDS
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
    ) -> Answer:
        """Any request, and its whole answer."""
        told = self.headers | ({} if body is None else {"content-type": JSON}) | dict(headers or {})
        line = HTTPConnection(*self.server.address, timeout=self.seconds)
        try:
            line.request(method, path, body, told)
            return _answer(line.getresponse())
        finally:
            line.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=_named(headers))

    def post(self, path: str, asked: object = None, **headers: str) -> Answer:
        """A change, told in JSON; headers by name, with `_` for `-`."""
        body = None if asked is None else json.dumps(asked).encode()
        return self.ask("POST", path, body, _named(headers))

    @contextmanager
    def stream(self, path: str, last: str | None = None) -> "Iterator[Stream]":
        """A stream that is open until the block ends, however far it was read."""
        told = self.headers | ({} if last is None else {"last-event-id": last})
        line = HTTPConnection(*self.server.address, timeout=self.seconds)
        line.request("GET", path, headers=told)
        response = line.getresponse()
        try:
            yield Stream(response)
        finally:
            response.close()
            line.close()


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _answer(response: HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


class Told(Struct, frozen=True):
    """What came as one: an event, or (without a name) a comment."""

    id: str = ""
    name: str = ""
    data: str = ""
    comment: str = ""
    retry: str = ""

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.data))


class Stream:
    """What a server sends for as long as it does; of a refusal, the answer."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.kind = response.getheader("content-type", "")

    def answer(self) -> Answer:
        return _answer(self._response)

    def __iter__(self) -> Iterator[Told]:
        fields: dict[str, str] = {}
        while line := self._response.readline().decode():
            name, colon, value = line.removesuffix("\n").partition(":")
            if colon:
                assert name not in fields, line
                fields[_FIELDS[name]] = value.removeprefix(" ")
            elif fields:
                yield Told(**fields)
                fields = {}
        assert not fields, fields

    def events(self) -> Iterator[Told]:
        """All but comments, and what is no event of a job: a place without an event is one to go on from."""
        return (one for one in self if one.id and one.data)


_FIELDS = {"": "comment", "id": "id", "event": "name", "data": "data", "retry": "retry"}


def said(answer: Answer) -> Any:  # noqa: ANN401
    """What a good answer says."""
    assert 200 <= answer.status < 300, answer
    assert answer.headers["content-type"] == JSON
    return json.loads(answer.body)


def problem(answer: Answer, status: int, words: str = "") -> dict[str, Any]:
    """A refusal with this status says these words, what to do, and nothing about what is inside."""
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
