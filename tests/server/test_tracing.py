"""One trace from the submitter, over HTTP, through the registry to the worker and its events."""

import asyncio
import os
import subprocess
import sys
import urllib.request
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from holdfast.registry.local import LocalRegistry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from tests import ROOT
from tests.server.running_server import serving

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What two processes did: one that traces, and one that does not."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "default"}
    runs = {
        how: subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.server.tracing_process",
                tmp_path_factory.mktemp(how),
                how,
            ],
            env=env,
            stdout=subprocess.PIPE,
        )
        for how in ("on", "off")
    }
    return {how: msgspec.json.decode(run.communicate(timeout=120)[0]) for how, run in runs.items()}


def span(told: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [one for one in told["spans"] if one["name"] == name]
    return dict(found)


@pytest.mark.parametrize("kind", ["plain", "coroutine", "broken", "command"])
def test_a_run_is_a_child_of_its_submission_in_the_trace_of_the_caller(
    told: dict[str, dict[str, Any]], kind: str
) -> None:
    on = told["on"]
    root, submit, run = (span(on, name) for name in ("web request", f"submit {kind}", f"run {kind}"))
    job = on["jobs"][kind]

    assert root["parent"] is None
    assert (submit["trace"], submit["parent"]) == (root["trace"], root["span"])
    assert (run["trace"], run["parent"]) == (root["trace"], submit["span"])
    assert (submit["kind"], run["kind"]) == ("PRODUCER", "CONSUMER")
    asked = [one for one in on["spans"] if one["parent"] == submit["span"] and one != run]
    assert [one["name"] for one in asked] == ["holdfast.v1.RegistryService/Enqueue"]
    assert job["traceparent"] == f"00-{root['trace']}-{submit['span']}-01"
    failed = kind == "broken"
    assert run["attributes"] == {
        "holdfast.job_id": job["job_id"],
        "holdfast.attempt": 1,
        "holdfast.queue": "default",
        "holdfast.kind": kind,
        "holdfast.correlation_id": job["job_id"],
        "holdfast.outcome": "failed" if failed else "succeeded",
    }
    assert (run["status"], run["why"]) == (("ERROR", "KeyError") if failed else ("UNSET", None))


def test_every_event_of_the_jobs_has_the_trace(told: dict[str, dict[str, Any]]) -> None:
    on = told["on"]
    types = {event["event_type"] for event in on["events"]}

    assert {"job_queued", "job_claimed", "job_started", "job_succeeded"} <= types
    assert {"job_dead_lettered", "output", "custom", "process_error"} <= types
    assert {event["trace_id"] for event in on["events"]} == {span(on, "web request")["trace"]}


def test_what_a_handler_does_is_part_of_its_run(told: dict[str, dict[str, Any]]) -> None:
    on = told["on"]
    for kind in ("plain", "coroutine"):
        run = span(on, f"run {kind}")
        here = f"00-{run['trace']}-{run['span']}-01"
        result = on["jobs"][kind]["result"]
        assert (result["context"], result["current"]) == (here, here)
    run = span(on, "run command")
    [said] = [event["data"] for event in on["events"] if event["event_type"] == "output"]
    assert b64decode(said).decode().strip() == f"00-{run['trace']}-{run['span']}-01"


def test_a_follow_up_is_a_child_of_the_run_that_asked_for_it(
    told: dict[str, dict[str, Any]],
) -> None:
    on = told["on"]
    run, after = span(on, "run plain"), span(on, "run after")

    assert (after["trace"], after["parent"]) == (run["trace"], run["span"])
    assert on["jobs"]["after"]["correlation_id"] == on["jobs"]["plain"]["job_id"]


def test_off_nothing_is_loaded_and_nothing_is_kept(told: dict[str, dict[str, Any]]) -> None:
    off = told["off"]

    assert off["loaded"] == []
    assert off["jobs"]["plain"]["result"] == {"context": None, "current": None, "loaded": []}
    assert {job["state"] for name, job in off["jobs"].items() if name != "broken"} == {"succeeded"}
    ids = {"trace_id", "traceparent"}
    assert not any(ids & one.keys() for one in (*off["events"], *off["jobs"].values()))
    ours = [e for e in off["events"] if e["job_id"] != off["jobs"]["after"]["job_id"]]
    assert not any("correlation_id" in event for event in ours)


def post(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("header", "named", "kept"),
    [
        (PARENT, {}, PARENT),
        (PARENT.replace("-01", "-00"), {}, PARENT.replace("-01", "-00")),
        (PARENT, {"traceId": "mine"}, None),
        (PARENT, {"traceparent": f"00-{'a' * 32}-{SPAN}-00"}, f"00-{'a' * 32}-{SPAN}-00"),
        (PARENT.upper(), {}, None),
        ("nonsense", {}, None),
        (f"00-{'0' * 32}-{SPAN}-01", {}, None),
    ],
)
async def test_the_header_of_a_caller_ties_its_jobs_unless_they_name_a_trace(
    header: str, named: dict[str, str], kept: str | None
) -> None:
    ids = SystemIds()
    registry = LocalRegistry(MemoryStore(SystemClock(), ids), ids)
    async with serving(registry) as served:
        path = "/holdfast.v1.RegistryService/Enqueue"
        request = {"requests": [{"jobId": "a", "spec": {"payload": "{}"}, **named}]}
        headers = {"traceparent": header, "content-type": "application/json"}
        asked = urllib.request.Request(served.url + path, msgspec.json.encode(request), headers)
        await asyncio.to_thread(post, asked)
        job = await registry.status("a")
    await registry.close()

    assert job.traceparent == kept
    assert job.trace_id == (kept.split("-")[1] if kept else named.get("traceId"))
