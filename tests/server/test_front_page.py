"""What a newcomer finds who opens the address of a server in a browser."""

from collections.abc import Iterator

import pytest

from holdfast.server.context import ServerSettings
from tests.server.raw_http_client import ThreadedServer, threaded_server
from tests.server.rest.rest_client import RestClient


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with threaded_server() as here:
        yield here


def test_the_root_names_what_there_is(server: ThreadedServer) -> None:
    answer = RestClient(server).get("/")

    told = answer.body.decode()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    for path in ("/docs", "/openapi.json", "/health"):
        assert path in told
        assert RestClient(server).get(path).status == 200


def test_the_root_names_nothing_that_is_not_there() -> None:
    with threaded_server(ServerSettings(services=("jobs",))) as here:
        told = RestClient(here).get("/").body.decode()

    assert "/job.v1.JobService/" in told
    assert "/docs" not in told


def test_a_path_that_does_not_exist_leads_to_the_root(server: ThreadedServer) -> None:
    answer = RestClient(server).get("/nothing")

    assert answer.status == 404
    assert b"GET / names what this server has" in answer.body


def test_the_page_shows_the_address_that_it_was_called_at(server: ThreadedServer) -> None:
    host, port = server.address
    client = RestClient(server)

    plain = client.get("/docs").body.decode()
    named = client.get("/docs", host="localhost:7777", x_forwarded_proto="https").body.decode()
    wrong = client.get("/docs", x_forwarded_proto="javascript").body.decode()

    assert f"curl -s http://{host}:{port}/v1/now" in plain
    assert "8080" not in plain
    assert "curl -s https://localhost:7777/v1/now" in named
    assert "javascript" not in wrong


def test_the_page_shows_the_key_where_keys_are_required() -> None:
    with threaded_server(ServerSettings(keys=True)) as here:
        page = RestClient(here).get("/docs").body.decode()
        odd = RestClient(here).get("/docs", host="a<script>").body.decode()

    assert "-H &quot;authorization: Bearer $HOLDFAST_KEY&quot;" in page
    assert "<script>" not in odd
