"""Bad input over REST: a problem that says what to do, no leak, nothing changed, and the server goes on."""

import logging
from collections.abc import Iterator

import pytest

from holdfast.server.limits import REQUEST_BYTES_MAX
from holdfast.server.rest import facade, routes
from holdfast.server.rest.routes import Route
from holdfast.server.rest.streams import STREAMS
from tests.server.raw_http_client import (
    RawResponse,
    ThreadedServer,
    parse_response,
    threaded_server,
)
from tests.server.rest.invalid_requests import BODIES, IDS, QUERIES, RULES, SPECS
from tests.server.rest.rest_client import RestClient, problem, result_of

EVERY = (*routes.ROUTES, *facade.ROUTES)
POSTS = [route for route in EVERY if route.method == "POST"]
NAMED = [route for route in POSTS if route.idempotency_field in ("op_id", "request_id")]
PATHS = [*(route.path for route in EVERY if route.parameters), next(iter(STREAMS))]


@pytest.fixture(scope="module")
def shared() -> Iterator[ThreadedServer]:
    with threaded_server() as one:
        result_of(RestClient(one).post("/v1/jobs", {"spec": {"kind": "report"}, "job_id": "job-1"}))
        yield one
        assert one.do(one.registry.verify()).equal


@pytest.fixture
def server(shared: ThreadedServer, caplog: pytest.LogCaptureFixture) -> Iterator[ThreadedServer]:
    """A server that must be as it was before, and have seen nothing worth an error."""
    caplog.set_level(logging.DEBUG)
    before = shared.do(shared.registry.tail())
    yield shared
    assert shared.do(shared.registry.tail()) == before
    assert result_of(RestClient(shared).get("/v1/jobs/job-1"))["version"] == 1
    loud = [one for one in caplog.get_records("call") if one.levelno >= logging.WARNING]
    assert not loud, [one.getMessage() for one in loud]
    assert "Traceback" not in caplog.text


def filled(path: str, text: str = "job-1") -> str:
    """The path with this in the place of what names something."""
    for name in ("{job_id}", "{key}", "{key_id}"):
        path = path.replace(name, text)
    return path


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_is_not_the_json_that_is_taken_is_refused_everywhere(
    server: ThreadedServer, body: bytes
) -> None:
    for route in POSTS:
        problem(server.send(filled(route.path), body), 400)


def test_a_field_that_nobody_knows_is_named(server: ThreadedServer) -> None:
    for route in POSTS:
        problem(server.send(filled(route.path), b'{"nope":1}'), 400, "nope")
    deep = {"spec": {"retry": {"max_failures": 2, "max_failure": 3}}}
    problem(RestClient(server).post("/v1/jobs", deep), 400, "max_failure")


@pytest.mark.parametrize("route", POSTS, ids=lambda route: route.path)
def test_a_field_of_another_kind_is_refused(server: ThreadedServer, route: Route) -> None:
    for name in route.form.__struct_fields__:
        problem(server.call(filled(route.path), {name: [[{"a": None}]]}), 400)
        if name in route.parameters:
            problem(server.call(filled(route.path), {name: "x"}), 400, "in the path")


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_a_spec_that_is_not_as_described_is_refused(server: ThreadedServer, spec: object) -> None:
    for path, asked in (
        ("/v1/jobs", {"spec": spec}),
        ("/v1/jobs/batch", {"requests": [{"spec": {}}, {"spec": spec}]}),
        ("/v1/jobs/job-2/acquire", {"owner": "w", "create": spec or 1}),
        (
            "/registry/acquire-job",
            {"job_id": "job-2", "worker_id": "w", "create": True, "spec": spec or 1},
        ),
    ):
        problem(RestClient(server).post(path, asked), 400)


@pytest.mark.parametrize("spec", RULES, ids=range(len(RULES)))
def test_what_a_rule_refuses_is_told_with_the_rule(server: ThreadedServer, spec: dict[str, object]) -> None:
    answer = RestClient(server).post("/v1/jobs", {"spec": {"kind": "report"} | spec})
    told = problem(answer, answer.status)
    assert answer.status in (400, 422)
    assert (told["type"] == "urn:holdfast:Invalid") == (answer.status == 422)


def test_a_body_of_another_type_is_not_taken(server: ThreadedServer) -> None:
    for kind in ("text/plain", "", "application/x-www-form-urlencoded", "application/json5"):
        for route in POSTS:
            answer = server.send(filled(route.path), b"{}", {"content-type": kind})
            assert "application/json" in problem(answer, 415)["advice"]
    answer = server.send(
        "/v1/jobs/status", b'{"job_ids":[]}', {"content-type": "Application/JSON; charset=utf-8"}
    )
    assert answer.status == 200


def test_a_body_that_is_too_large_is_not_read(server: ThreadedServer) -> None:
    large = b'{"a":"' + b"x" * REQUEST_BYTES_MAX + b'"}'
    chunk = b"%x\r\n%b\r\n" % (len(large), large)
    head = b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

    problem(server.send("/v1/jobs", large), 413, "KiB")
    problem(server.send("/registry/acquire-job", large), 413, "KiB")
    problem(parse_response(server.raw(head + b"transfer-encoding: chunked\r\n\r\n" + chunk)), 413, "KiB")


@pytest.mark.parametrize("text", IDS, ids=range(len(IDS)))
def test_no_id_in_a_path_is_strange_enough(server: ThreadedServer, text: str) -> None:
    for path in PATHS:
        for method in ("GET", "POST"):
            answer = server.send(filled(path, text), b"{}", method=method)
            assert answer.status in (400, 405), (path, answer)
            problem(answer, answer.status)


@pytest.mark.parametrize("path", ["a%2Fb", "%2e%2e%2f%2e%2e", "a/b", "/", "//", "job-1/"])
def test_a_slash_in_an_id_is_no_id(server: ThreadedServer, path: str) -> None:
    for prefix in ("/v1/jobs/", "/registry/job-status/", "/v1/locks/"):
        problem(server.send(prefix + path, method="GET"), 404, "nothing at")


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_query_that_is_not_as_described_is_refused(server: ThreadedServer, query: str) -> None:
    problem(server.send(f"/v1/jobs?{query}", method="GET"), 400)


def test_a_cursor_that_is_none_is_refused(server: ThreadedServer) -> None:
    for path in ("/v1/jobs", "/v1/events", "/v1/jobs/job-1/logs", *map(filled, STREAMS)):
        problem(server.send(f"{path}?after=nope", method="GET"), 422, "cursor")


def test_another_method_is_told_which_are_taken(server: ThreadedServer) -> None:
    taken: dict[str, set[str]] = {path: {"GET", "HEAD"} for path in STREAMS}
    taken |= {"/openapi.json": {"GET", "HEAD"}, "/docs": {"GET", "HEAD"}}
    for route in EVERY:
        taken.setdefault(route.path, set()).update({"GET", "HEAD"} if route.method == "GET" else {"POST"})
    also = {path: {"GET"} for path in ("/v1/jobs/batch", "/v1/jobs/status")}  # jobs of that name
    for path, methods in taken.items():
        others = {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - also.get(path, set())
        for method in others - methods:
            answer = RestClient(server).ask(method, filled(path))
            problem(answer, 405, method)
            assert set(answer.headers["allow"].split(", ")) == methods, path


def test_head_is_get_without_a_body(server: ThreadedServer) -> None:
    for route in EVERY:
        if route.method == "GET":
            path = filled(route.path)
            got, head = (RestClient(server).ask(method, path) for method in ("GET", "HEAD"))
            assert (head.status, head.body) == (got.status, b""), path
            assert head.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize("key", ["", " ", "a b", "a/b", "..", "x" * 129, '"', "caf\xe9", "a,b"])
def test_a_key_that_is_no_id_names_nothing(server: ThreadedServer, key: str) -> None:
    for route in POSTS:
        asked = filled(route.path)
        lines = [f"POST {asked} HTTP/1.1", "host: localhost", "content-type: application/json"]
        lines += [f"idempotency-key: {key}", "content-length: 2", "", ""]
        answer = parse_response(server.raw("\r\n".join(lines).encode() + b"{}"))
        problem(answer, 400, "Idempotency-Key")


def test_a_key_and_a_name_that_differ_are_refused(server: ThreadedServer) -> None:
    for route in NAMED:
        answer = RestClient(server).post(
            filled(route.path), {route.idempotency_field or "": "one"}, idempotency_key="other"
        )
        problem(answer, 422, "Idempotency-Key")


def test_what_the_door_refuses_is_a_problem_too(server: ThreadedServer) -> None:
    key = "hf_0123456789ab_" + "A" * 43
    for path in ("/v1/jobs", "/registry/job-status/x", "/v1/events/stream", "/openapi.json"):

        def got(headers: dict[str, str], query: str = "", path: str = path) -> RawResponse:
            return server.send(path + query, headers=headers, method="GET")

        problem(got({"host": "evil.example"}), 403, "localhost")
        problem(got({"origin": "https://evil.example"}), 403, "--cors-origin")
        problem(got({"origin": "null"}), 403, "--cors-origin")
        refused = got({}, f"?key={key}")
        problem(refused, 400, "Authorization")
        assert key.encode() not in refused.body
        problem(got({"x-more": "a" * 17_000}), 431, "KiB")
        problem(got({}, "?after=" + "a" * 17_000), 431, "KiB")
        problem(got({"x-more": "\xff"}), 400, "UTF-8")
    named = server.send(f"/v1/jobs/{key}", headers={}, method="GET")
    problem(named, 400, "Authorization")
    assert key.encode() not in named.body
    near = {"host": "127.0.0.1", "origin": "http://localhost:3000"}
    assert server.send("/v1/jobs", headers=near, method="GET").status == 200


def test_there_is_nothing_elsewhere(server: ThreadedServer) -> None:
    for path in ("/v1/", "/v1/nope", "/registry/", "/registry/nope", "/v1/jobs/job-1/nope"):
        for method in ("GET", "POST", "DELETE"):
            problem(RestClient(server).ask(method, path), 404, path)


def test_half_a_request_is_no_request(server: ThreadedServer) -> None:
    """Whoever leaves in the middle has changed nothing, and the server says nothing loud."""
    head = b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    for body in (b"", b'{"spec":{"kind":"rep'):
        with server.connect() as plug:
            plug.sendall(head + b"content-length: 100\r\n\r\n" + body)
