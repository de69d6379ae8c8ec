"""Outputs over REST: promised, validated, listed, resumed; and `holdfast serve` with an output store."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from msgspec.structs import replace

from holdfast.core.manifest import Task
from holdfast.outputs.results import ResultAuthor, Results
from holdfast.ports import Outputs
from tests.server.access_calls import TASK
from tests.server.outputs_server import tasks
from tests.server.programs import environment, service, store
from tests.server.rest.rest_client import problem, result_of
from tests.server.rest.rest_registry import RestRegistry

SPEC = {"kind": "sweep", "queue": "sweeps"}


def put(registry: RestRegistry, job_id: str, count: int, some: Sequence[Task] | None = None) -> None:
    """Leave the results of the first few tasks in the output store of the server."""

    async def write() -> None:
        outputs: Outputs | None = await registry.server.served.app.context.outputs.open()
        assert outputs is not None
        for task in (some or tasks())[:count]:
            writer = ResultAuthor(job_id=job_id, token=1)
            await Results(outputs).put(task, {"curve.csv": b"1"}, writer=writer)

    registry.server.do(write())


def kept(registry: RestRegistry, wanted: Sequence[Task] | None = None) -> dict[str, Any]:
    some = [
        {"bundle": one.bundle, "entrypoint": one.entrypoint, "params": one.params, "seed": one.seed}
        for one in wanted or tasks()
    ]
    answer = registry.rest.post("/v1/manifests", {"tasks": some})
    assert answer.status == 201
    return dict(result_of(answer))


def test_a_study_is_promised_found_in_part_and_made_again(registry: RestRegistry) -> None:
    manifest = kept(registry)
    promise = {"manifest": manifest["sha256"], "entries": manifest["entries"]}
    job_id = registry.enqueue(outputs=promise)
    registry.act("complete", registry.take(job_id, "w")["task_token"], success={})
    put(registry, job_id, 2)

    judged = result_of(registry.rest.post(f"/v1/jobs/{job_id}/validate", {"force": True}))
    page = result_of(registry.rest.get(f"/v1/jobs/{job_id}/outputs?limit=1"))
    rest = result_of(registry.rest.get(f"/v1/jobs/{job_id}/outputs?after={page['next']}"))
    lacking = result_of(registry.rest.get(f"/v1/jobs/{job_id}/outputs?missing=true"))
    planned = result_of(registry.rest.post(f"/v1/jobs/{job_id}/resume", {"dry_run": True}))
    resumed = result_of(registry.rest.post(f"/v1/jobs/{job_id}/resume", {}))
    put(registry, resumed["job"]["job_id"], 3)
    cached = result_of(registry.rest.post("/v1/jobs", {"spec": {**SPEC, "outputs": promise}, "reuse": True}))

    assert registry.job(job_id)["spec"]["outputs"]["store"] == manifest["store"]
    assert judged["state"] == "partial_success"
    assert (judged["found"]["verified"], judged["found"]["missing"]) == (2, 1)
    names = [task.name for task in tasks()]
    assert [one["name"] for one in page["outputs"] + rest["outputs"]] == names
    assert [one["missing"] is None for one in page["outputs"] + rest["outputs"]] == [
        True,
        True,
        False,
    ]
    assert [one["name"] for one in lacking["outputs"]] == names[2:]
    assert (planned["missing"], planned["names"], planned["job"]) == (1, names[2:], None)
    assert resumed["job"]["spec"]["outputs"]["entries"] == 1
    assert (cached["state"], cached["found"]["reused"]) == ("succeeded", 3)
    assert registry.types(cached["job_id"])[-1] == "job_succeeded"


def test_a_study_that_failed_is_looked_at_and_resumed_once(registry: RestRegistry) -> None:
    some = [replace(task, seed=1000 + n) for n, task in enumerate(tasks())]
    manifest = kept(registry, some)
    promise = {"manifest": manifest["sha256"], "entries": manifest["entries"]}
    job_id = registry.enqueue(outputs=promise)
    failure = {"message": "the disk is full", "retryable": False}
    registry.act("complete", registry.take(job_id, "w")["task_token"], failure=failure)
    put(registry, job_id, 2, some)
    before = result_of(registry.rest.get(f"/v1/jobs/{job_id}/outputs"))

    judged = result_of(registry.rest.post(f"/v1/jobs/{job_id}/validate", {"force": True}))
    lacking = result_of(registry.rest.get(f"/v1/jobs/{job_id}/outputs?missing=true"))
    why = result_of(registry.rest.get(f"/v1/jobs/{job_id}/why"))
    resumed = result_of(registry.rest.post(f"/v1/jobs/{job_id}/resume", {}))
    again = result_of(registry.rest.post(f"/v1/jobs/{job_id}/resume", {}))
    beside = result_of(registry.rest.post(f"/v1/jobs/{job_id}/resume", {"again": True}))

    assert not before["checked"]
    assert judged["state"] == "failed"
    assert (judged["found"]["verified"], judged["found"]["missing"]) == (2, 1)
    assert [one["name"] for one in lacking["outputs"]] == [some[2].name]
    assert "2 of 3 outputs are there; to make the other 1" in str(why)
    assert (resumed["earlier"], again["earlier"], beside["earlier"]) == (False, True, False)
    assert again["job"]["job_id"] == resumed["job"]["job_id"] != beside["job"]["job_id"]
    assert registry.types(job_id).count("job_outputs_verified") == 1


def test_where_a_failed_command_ran_goes_over_rest(registry: RestRegistry) -> None:
    asked = {"kind": "command", "payload": {"argv": ["make"]}}
    for end, state in (("failure", "failed"), ("stopped", "cancelled")):
        job_id = registry.enqueue(outputs={"files": [{"path": "a"}]}, **asked)
        told = {"where": "box:/work"}
        if end == "failure":
            told |= {"message": "x", "retryable": False}  # type: ignore[dict-item]
        ended = result_of(registry.act("complete", registry.take(job_id, "w")["task_token"], **{end: told}))

        assert (ended["state"], ended["check"]["where"]) == (state, "box:/work")


def test_a_worker_says_where_it_ran_and_what_it_found(registry: RestRegistry) -> None:
    asked = {"kind": "command", "payload": {"argv": ["make"]}}
    job_id = registry.enqueue(outputs={"files": [{"path": "a"}, {"path": "b"}]}, **asked)
    token = registry.take(job_id, "w")["task_token"]
    ended = result_of(registry.act("complete", token, success={"result": 1, "where": "box:/work"}))
    path = f"/v1/jobs/{job_id}"

    looked = result_of(
        registry.rest.post(f"{path}/validation/report", {"actor": "validator:w", "done": 1, "total": 2})
    )
    problem(registry.rest.post(f"{path}/validation/report", {"actor": "validator:x"}), 409, "validating")
    problem(
        registry.rest.post(f"{path}/validation/complete", {"found": {"verified": 3}}),
        422,
        "promised",
    )
    judged = result_of(
        registry.rest.post(
            f"{path}/validation/complete",
            {
                "actor": "validator:w",
                "found": {"verified": 1, "missing": 1, "names": ["b"]},
                "evidence": [{"name": "a", "size": 3}, {"name": "b", "missing": "not there"}],
                "version": looked["version"],
            },
        )
    )
    problem(
        registry.rest.post(f"{path}/validation/complete", {"version": looked["version"]}),
        409,
        "validation was completed since",
    )
    page = result_of(registry.rest.get(f"{path}/outputs"))

    assert ended["check"]["where"] == "box:/work"
    assert looked["check"]["by"] == "validator:w"
    assert judged["state"] == "partial_success"
    assert [(one["name"], one["size"], one["missing"]) for one in page["outputs"]] == [
        ("a", 3, None),
        ("b", None, "not there"),
    ]


def test_an_operator_overrides_with_a_reason(registry: RestRegistry) -> None:
    path = f"/v1/jobs/{registry.promising('curve')}/validation/complete"

    problem(registry.rest.post(path, {"override": "succeeded"}), 422, "reason")
    problem(registry.rest.post(path, {"override": "queued", "reason": "x", "actor": "user:a"}), 409)
    judged = result_of(
        registry.rest.post(path, {"override": "failed", "reason": "lost", "actor": "user:ana"})
    )

    assert (judged["state"], judged["reason"]) == ("failed", "lost")
    told = registry.rest.get("/metrics").body.decode()
    assert 'holdfast_validations_total{kind="report",verdict="failed"} 1' in told


@pytest.mark.parametrize(
    ("task", "status", "words"),
    [
        ({**TASK, "bundle": "latest"}, 422, "Task 2: The bundle"),
        ({**TASK, "seed": None}, 422, "Task 2: A simulation needs a seed"),
        ({**TASK, "seed": 2**64}, 422, "Task 2: A seed"),
        ({**TASK, "seed": -1}, 422, "Task 2: A seed"),
        ({**TASK, "target": "../../x"}, 422, "Task 2"),
        ({**TASK, "outputs": ["../x"]}, 422, "Task 2"),
        ({**TASK, "params": {"a": [1]}}, 400, "params"),
        ({**TASK, "path": "x"}, 400, "path"),
        (TASK, 422, "Lines 1 and 2 are the same"),
        (None, 400, "tasks"),
    ],
)
def test_a_manifest_with_a_wrong_task_is_not_kept(
    registry: RestRegistry, task: object, status: int, words: str
) -> None:
    problem(registry.rest.post("/v1/manifests", {"tasks": [TASK, task]}), status, words)


def test_a_manifest_of_nothing_or_of_too_much_is_not_kept(registry: RestRegistry) -> None:
    problem(registry.rest.post("/v1/manifests", {"tasks": []}), 400)
    many = {"tasks": [{**TASK, "seed": seed} for seed in range(10_000)]}
    problem(registry.rest.post("/v1/manifests", many), 413, "KiB")


def test_a_cursor_of_another_list_is_refused(registry: RestRegistry) -> None:
    path = f"/v1/jobs/{registry.promising('curve')}/outputs"

    problem(registry.rest.get(f"{path}?after=nope"), 422, "cursor")
    problem(registry.rest.get(f"{path}?limit=1001"), 400)
    problem(registry.rest.get("/v1/jobs/nobody/outputs"), 404)


def _post(url: str, path: str, body: object) -> dict[str, Any]:
    asked = Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    with urlopen(asked) as answer:
        return dict(json.loads(answer.read()))


def test_serve_takes_the_output_store_that_it_is_given_and_makes_it(tmp_path: Path) -> None:
    with service(tmp_path, "--outputs", str(tmp_path / "results")) as url:
        told = _post(url, "/v1/manifests", {"tasks": [TASK]})
    with service(tmp_path, "--outputs", str(tmp_path / "results")):
        pass

    assert (tmp_path / "results" / "manifests" / f"{told['sha256']}.jsonl").is_file()
    log = (tmp_path / "serve.log").read_text()
    assert f"It validates outputs in file://{tmp_path}/results." in log


def test_serve_keeps_outputs_beside_its_file_once_there_are_any(tmp_path: Path) -> None:
    with service(tmp_path) as url:
        before = (tmp_path / "jobs.outputs").exists()
        told = _post(url, "/v1/manifests", {"tasks": [TASK]})

    assert not before
    assert (tmp_path / "jobs.outputs" / "manifests" / f"{told['sha256']}.jsonl").is_file()


def test_serve_does_without_an_output_store_that_is_away_and_says_so(tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.write_text("no folder")

    with service(tmp_path, "--outputs", str(place)) as url:
        made = _post(url, "/v1/jobs", {"spec": {"payload": {"argv": ["true"]}}})

    assert made["state"] == "queued"
    assert "The output store is unavailable and will be tried again" in (tmp_path / "serve.log").read_text()


def test_an_address_that_is_no_output_store_is_refused_before_anybody_is_served(
    tmp_path: Path,
) -> None:
    holdfast = (sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0")
    told = subprocess.run(
        [*holdfast, "--store", store(tmp_path), "--outputs", "ftp://x"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert told.returncode != 0
    assert "ftp" in told.stderr
    assert "serves" not in told.stderr + told.stdout
