"""curl as a client of job.v1, with JSON that is typed by hand."""

import json
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest

from tests.server.programs import PATIENCE_SECONDS, environment, key, service
from verify.postgres_server import installed

CURL = Path("/usr/bin/curl")
END_OF_STREAM = 2


class Curl:
    """Calls of one server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, method: str, body: object, *options: str) -> tuple[int, Any]:
        """The status and the body of an answer."""
        text = body if isinstance(body, str) else json.dumps(body)
        words = self.words(method, "application/json", *options, "--data", text)
        done = subprocess.run(
            [*words, "--write-out", "\n%{http_code}"],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(answer) if answer else None

    def words(self, method: str, kind: str, *options: str) -> list[str]:
        limit = ("--max-time", str(PATIENCE_SECONDS))
        header = ("--header", f"Content-Type: {kind}")
        service = "JobEventsService" if method.endswith("Events") else "JobService"
        there = f"{self.url}/job.v1.{service}/{method}"
        return [str(CURL), "--silent", "--show-error", *limit, *header, *options, there]

    def stream(self, method: str, *messages: object) -> "subprocess.Popen[bytes]":
        """A call whose request or answer is a stream."""
        sent = b"".join(enveloped(one) for one in messages)
        words = self.words(method, "application/connect+json", "--no-buffer", "--data-binary", "@-")
        curl = subprocess.Popen(words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert curl.stdin is not None
        curl.stdin.write(sent)
        curl.stdin.close()
        return curl

    def streamed(self, method: str, *messages: object) -> list[tuple[int, Any]]:
        """All that such a call answers: flags and message, the last of which says how it ended."""
        with self.stream(method, *messages) as curl:
            assert curl.stdout is not None
            return list(frames(curl.stdout))

    def enqueued(self, queue: str) -> str:
        params = {"command": "echo", "args": ["hi"]}
        status, made = self("EnqueueJob", {"queue": queue, "jobParams": params})
        assert (status, made["state"]) == (200, "JOB_STATE_SCHEDULED")
        return str(made["jobId"])

    def held(self, queue: str, seconds: int = 300) -> str:
        """The task token of the next job."""
        asked = {"queue": queue, "visibilityTimeoutSeconds": seconds}
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            [*grants, end] = self.streamed("DequeueJob", asked)
            assert end == (END_OF_STREAM, {})
            if grants:
                return str(grants[0][1]["taskToken"])
        raise AssertionError("no job came")


def enveloped(message: object) -> bytes:
    """A message of a stream: flags, length, JSON."""
    data = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(data)) + data


def frames(stream: IO[bytes]) -> Iterator[tuple[int, Any]]:
    while head := stream.read(5):
        flags, length = struct.unpack(">BI", head)
        yield flags, json.loads(stream.read(length))


@pytest.fixture(scope="module")
def curl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Curl]:
    installed(CURL, "curl")
    folder = tmp_path_factory.mktemp("service")
    with service(folder, "--poll", "2s") as url:
        yield Curl(url)


@pytest.fixture
def queue() -> str:
    return f"q-{uuid4()}"


def test_jobs_are_made_shown_and_listed(curl: Curl, queue: str) -> None:
    made = [curl.enqueued(queue) for _ in range(3)]

    status, shown = curl("GetJob", {"jobId": made[0]})
    first = curl("ListJobs", {"queue": queue, "pageSize": 2})
    last = curl("ListJobs", {"queue": queue, "pageSize": 2, "page": 2})
    none = curl("ListJobs", {"queue": queue, "state": "JOB_STATE_FAILED"})

    assert status == 200
    assert shown["job"]["jobParams"]["command"] == "echo"
    assert shown["job"]["jobParams"]["args"] == ["hi"]
    assert (shown["job"]["queue"], shown["job"]["attempt"]) == (queue, 1)
    assert [job["jobId"] for _, page in (first, last) for job in page["jobs"]] == made
    assert [(status, page["lastPage"]) for status, page in (first, last)] == [(200, 2), (200, 2)]
    assert none == (200, {"lastPage": 1})


def test_a_request_that_is_sent_again_makes_one_job(curl: Curl, queue: str) -> None:
    asked = {"queue": queue, "requestId": str(uuid4()), "jobParams": {"command": "true"}}

    first = curl("EnqueueJob", asked)
    again = curl("EnqueueJob", asked)
    other = curl("EnqueueJob", {**asked, "jobParams": {"command": "false"}})

    assert first == again
    assert (other[0], other[1]["code"]) == (400, "failed_precondition")
    assert "use another request_id" in other[1]["message"]


def test_events_arrive_while_the_stream_is_open_and_end_with_the_job(curl: Curl, queue: str) -> None:
    job_id = curl.enqueued(queue)
    token = curl.held(queue)
    output = {"sequence": "1", "eventType": "EVENT_TYPE_OUTPUT", "output": {"output": "aGk="}}
    with curl.stream("StreamJobEvents", {"jobId": job_id}) as monitor:
        assert monitor.stdout is not None
        found = frames(monitor.stdout)

        published = curl.streamed("PublishJobEvents", {"taskToken": token, "events": [output]})
        live = next(found)
        done = curl("CompleteJob", {"taskToken": token, "jobResult": {"exitCode": 3}})
        rest = list(found)

    assert published == [(0, {}), (END_OF_STREAM, {})]
    assert (live[0], live[1]["event"]["sequence"]) == (0, "1")
    assert live[1]["event"]["output"]["output"] == "aGk="
    assert done == (200, {})
    assert rest == [(END_OF_STREAM, {})]
    assert monitor.returncode == 0
    result = curl("GetJob", {"jobId": job_id})[1]["job"]["result"]
    assert (result["exitCode"], result.get("success")) == (3, None)


def test_an_empty_queue_ends_its_stream_without_a_job(curl: Curl, queue: str) -> None:
    assert curl.streamed("DequeueJob", {"queue": queue}) == [(END_OF_STREAM, {})]


@pytest.mark.parametrize(
    ("method", "body", "status", "code", "words"),
    [
        ("GetJob", {"jobId": "nonsense"}, 400, "invalid_argument", "job_id must be a UUID"),
        ("GetJob", {"jobId": str(uuid4())}, 404, "not_found", "There is no job"),
        ("UpdateJob", {"taskToken": str(uuid4())}, 404, "not_found", "unknown or expired"),
        ("EnqueueJob", {"jobParams": {"colour": 1}}, 400, "invalid_argument", "colour"),
        ("EnqueueJob", "{", 400, "invalid_argument", ""),
        ("ListJobs", {"pageSize": -1}, 400, "invalid_argument", "page_size is from 1"),
    ],
    ids=["no UUID", "no job", "no token", "no such field", "no JSON", "no page"],
)
def test_a_refusal_says_what_is_wrong(
    method: str, body: object, status: int, code: str, words: str, curl: Curl
) -> None:
    got, answer = curl(method, body)

    assert (got, answer["code"]) == (status, code)
    assert words in answer["message"]


def test_a_stream_that_is_refused_says_so_in_its_last_message(curl: Curl) -> None:
    [(flags, end)] = curl.streamed("StreamJobEvents", {"jobId": str(uuid4())})

    assert (flags, end["error"]["code"]) == (END_OF_STREAM, "not_found")
    assert "There is no job" in end["error"]["message"]


@pytest.mark.parametrize(
    ("method", "kind", "option", "status"),
    [
        ("Nonesuch", "application/json", "--data={}", "404"),
        ("GetJob", "application/json", "--get", "405"),
        ("GetJob", "text/plain", "--data={}", "415"),
    ],
)
def test_what_is_no_call_is_refused_by_its_status(
    method: str, kind: str, option: str, status: str, curl: Curl
) -> None:
    words = curl.words(method, kind, *option.split("="), "--output", "/dev/null")

    done = subprocess.run([*words, "--write-out", "%{http_code}"], capture_output=True, text=True, check=True)

    assert done.stdout == status


def test_a_key_opens_the_door_in_a_header_and_nowhere_else(tmp_path: Path) -> None:
    installed(CURL, "curl")
    secret = key(tmp_path, "observe")
    with service(tmp_path, "--keys") as url:
        curl = Curl(url)

        without = curl("ListJobs", {})
        wrong = curl("ListJobs", {}, "--header", f"Authorization: Bearer {secret[:-1]}")
        right = curl("ListJobs", {}, "--header", f"Authorization: Bearer {secret}")
        more = curl("EnqueueJob", {"jobParams": {"command": "true"}}, "--oauth2-bearer", secret)

    assert (without[0], without[1]["code"]) == (401, "unauthenticated")
    assert "Authorization: Bearer" in without[1]["message"]
    assert (wrong[0], wrong[1]["code"]) == (401, "unauthenticated")
    assert right == (200, {"lastPage": 1})
    assert (more[0], more[1]["code"]) == (403, "permission_denied")
