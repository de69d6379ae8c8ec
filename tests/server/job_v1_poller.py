"""A worker of job.v1 as others have written it: Connect by hand over HTTP/1.1, a deadline on every poll,
a back-off after an empty one. It does not know of cancel, and ignores timeouts."""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

DEADLINE_SECONDS = 90.0
BACK_OFF_SECONDS, BACK_OFF_FACTOR, BACK_OFF_SECONDS_MAX = 1.0, 1.5, 10.0
END_OF_STREAM = 2

Said = dict[str, Any]


class Refused(Exception):
    """A call that was refused: its code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Polled(Struct, frozen=True):
    """What one poll gave: jobs in order, and how long a worker pauses before the next."""

    jobs: list[Said]
    pause_seconds: float


class PollingWorker:
    """One worker at one server."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port
        self._pause = 0.0

    def poll(self, deadline_seconds: float | None = DEADLINE_SECONDS, **asked: object) -> Polled:
        """Claim a job, and wait for one until the deadline at most."""
        told = {"content-type": "application/connect+json"}
        if deadline_seconds is not None:
            told["connect-timeout-ms"] = str(round(deadline_seconds * 1000))
        with self._post("JobService/DequeueJob", _framed(asked), told) as response:
            jobs = _read(response)
        self._pause = 0.0 if jobs else _longer(self._pause)
        return Polled(jobs, self._pause)

    def call(self, method: str, **asked: object) -> Said:
        """Make a unary call."""
        told = {"content-type": "application/json"}
        with self._post(method, json.dumps(asked).encode(), told) as response:
            answer: Said = json.loads(response.read())
        if response.status != 200:
            raise Refused(answer["code"], answer.get("message", ""))
        return answer

    def begin(self, task_token: str) -> None:
        """Publish that the process has started, as every worker does."""
        begun = {"sequence": 1, "eventType": "EVENT_TYPE_PROCESS_START", "processStart": {"pid": 7}}
        told = {"content-type": "application/connect+json"}
        asked = {"taskToken": task_token, "events": [begun]}
        with self._post("JobEventsService/PublishJobEvents", _framed(asked), told) as response:
            _read(response)

    def complete(self, task_token: str) -> None:
        self.call("JobService/CompleteJob", taskToken=task_token, jobResult={"success": True})

    @contextmanager
    def _post(self, method: str, body: bytes, told: dict[str, str]) -> Iterator[HTTPResponse]:
        line = HTTPConnection(self._host, self._port, timeout=DEADLINE_SECONDS + 10)
        try:
            line.request("POST", f"/job.v1.{method}", body, told)
            yield line.getresponse()
        finally:
            line.close()


def _read(response: HTTPResponse) -> list[Said]:
    """Return the messages of a stream, which must end without an error."""
    messages: list[Said] = []
    while True:
        flags, size = struct.unpack(">BI", response.read(5))
        message = json.loads(response.read(size))
        if not flags & END_OF_STREAM:
            messages.append(message)
        elif error := message.get("error"):
            raise Refused(error["code"], error.get("message", ""))
        else:
            return messages


def _framed(message: object) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(body)) + body


def _longer(pause: float) -> float:
    return min(pause * BACK_OFF_FACTOR, BACK_OFF_SECONDS_MAX) if pause else BACK_OFF_SECONDS
