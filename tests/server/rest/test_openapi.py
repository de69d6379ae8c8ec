"""REST by its own description: requests that are generated from `/openapi.json`, and their responses.
The long form is `python -m verify.rest_fuzz`."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from msgspec import structs
from schemathesis import GenerationMode

from tests.server.programs import service
from verify.environment import scratch
from verify.rest_fuzz import SEED, SHORT, TAKEN, fuzz

STREAMS = ("/v1/jobs/{job_id}/stream", "/v1/events/stream")
LIFE = ("/v1/jobs", "/v1/grants", "/v1/grants/heartbeat")


@pytest.mark.slow
def test_all_checks_hold_where_everybody_may_ask() -> None:
    with scratch("holdfast-rest-", 64) as folder:
        run = fuzz(folder, SHORT, SEED, keys=False)

    assert run.failures == [], run.report
    assert run.cases > 1_000
    assert all(run.reached[f"POST {path}"] for path in LIFE)


@pytest.mark.long
@pytest.mark.slow
def test_all_checks_hold_for_a_key_that_may_everything() -> None:
    size = structs.replace(SHORT, phases="fuzzing,stateful", everywhere=False)

    with scratch("holdfast-rest-", 64) as folder:
        run = fuzz(folder, size, SEED, keys=True)

    assert run.failures == [], run.report
    assert run.reached["POST /v1/keys"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("streams")) as opened:
        yield opened


@pytest.fixture(scope="module")
def described(url: str) -> schemathesis.BaseSchema:
    with urlopen(f"{url}/openapi.json") as answer:
        return schemathesis.openapi.from_dict(json.loads(answer.read()))


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", STREAMS)
def test_streams_open_or_are_refused_as_described(
    path: str, mode: GenerationMode, url: str, described: schemathesis.BaseSchema
) -> None:
    @settings(max_examples=12, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=described[path]["GET"].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        asked = case.as_transport_kwargs(base_url=url)
        with requests.request(**asked, stream=True, timeout=60) as answer:
            kind = answer.headers.get("content-type", "").partition(";")[0]
            first = next(answer.iter_content(8), b"") if kind == "text/event-stream" else b""
        if mode is GenerationMode.POSITIVE:
            assert answer.status_code in (200, 204, *map(int, TAKEN[1:]))
        else:
            assert 400 <= answer.status_code < 500
        if answer.status_code != 204:
            wanted = "text/event-stream" if answer.ok else "application/problem+json"
            assert (kind, bool(first)) == (wanted, answer.ok)

    ask()
