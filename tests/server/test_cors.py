"""Which pages of other origins a browser lets call the server: none, unless the setting names them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.serve import serve
from holdfast.core.errors import Invalid
from holdfast.server.context import ServerSettings
from holdfast.server.cors import check_origin
from tests.cli.command_line import CommandLine
from tests.server.raw_http_client import RawResponse, ThreadedServer, threaded_server
from tests.server.rest.rest_client import RestClient, problem, result_of

PAGE = "https://app.example.org"
OTHER = "https://evil.example.org"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
LETTING = {"access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers"}


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with threaded_server(ServerSettings(cors_origins=(PAGE, "http://localhost:5173"))) as here:
        yield here


@pytest.fixture(scope="module")
def closed() -> Iterator[ThreadedServer]:
    with threaded_server() as here:
        yield here


def preflight(server: ThreadedServer, origin: str, path: str = "/v1/jobs") -> RawResponse:
    return RestClient(server).ask("OPTIONS", path, headers={"origin": origin, **ASKED})


@pytest.mark.parametrize("path", ["/v1/jobs", "/registry/acquire-job", "/job.v1.JobService/EnqueueJob"])
@pytest.mark.parametrize("origin", [PAGE, "http://localhost:5173"])
def test_a_preflight_of_an_allowed_page_is_answered(server: ThreadedServer, origin: str, path: str) -> None:
    answer = preflight(server, origin, path)

    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == origin
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "content-type", "idempotency-key", "last-event-id"} <= set(allowed)
    assert answer.headers["vary"] == "origin"


def test_an_allowed_page_reads_results_refusals_and_streams(server: ThreadedServer) -> None:
    client = RestClient(server)

    made = client.post("/v1/jobs", {"spec": {"kind": "report"}}, origin=PAGE)
    job_id = result_of(made)["job_id"]
    missing = client.get("/v1/jobs/nobody", origin=PAGE)
    with client.stream(f"/v1/jobs/{job_id}/stream") as opened:
        assert opened.status == 200
    result_of(client.post(f"/v1/jobs/{job_id}/cancel", {}, origin=PAGE))
    streamed = client.get(f"/v1/jobs/{job_id}/stream", origin=PAGE)

    problem(missing, 404)
    for answer in (made, missing, streamed):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "access-control-allow-credentials" not in answer.headers


def test_a_page_that_is_not_named_is_refused_with_the_setting(server: ThreadedServer) -> None:
    answer = preflight(server, OTHER)

    problem(answer, 403, "--cors-origin")
    assert not LETTING & answer.headers.keys()
    assert RestClient(server).get("/v1/now", origin=OTHER).status == 403


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1"])
def test_without_the_setting_no_page_is_let_in(closed: ThreadedServer, origin: str) -> None:
    asked = preflight(closed, origin)
    answer = RestClient(closed).get("/v1/now", origin=origin)

    problem(asked, 403, "--cors-origin")
    for one in (asked, answer):
        assert not LETTING & one.headers.keys()


def test_options_without_a_preflight_are_what_they_were(server: ThreadedServer) -> None:
    problem(RestClient(server).ask("OPTIONS", "/v1/now"), 405)


def test_every_page_is_let_in_only_with_a_key() -> None:
    with threaded_server(ServerSettings(cors_origins=("*",), keys=True)) as here:
        answer = preflight(here, OTHER)
        refused = RestClient(here).get("/v1/now", origin=OTHER)

    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, OTHER)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, OTHER)


def test_what_is_no_origin_is_refused(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    for wrong in ("app.example.org", "https://app.example.org/", "ftp://x", "null", "https://a b"):
        told = cli.run("serve", "--cors-origin", wrong, code=2).stderr
        assert "is not an origin, such as https://app.example.org" in told
    told = cli.run("serve", "--cors-origin", "*", code=2).stderr
    assert "name the origins, or require --keys" in told


def test_an_origin_is_compared_as_browsers_write_it() -> None:
    assert check_origin("https://App.Example.org:443") == PAGE
    assert check_origin("http://localhost:80") == "http://localhost"
    assert check_origin("http://localhost:443") == "http://localhost:443"
    with pytest.raises(Invalid):
        check_origin("https://x:443/")
    assert "cors_origins" in {option.name for option in serve.params}
