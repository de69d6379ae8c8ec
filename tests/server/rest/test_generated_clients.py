"""Clients that public generators make of `/openapi.json`: they compile, and work with a real server."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.server.node_programs import node, node_folder
from tests.server.programs import environment, key, service

SOURCE = Path(__file__).parent / "rest_node"

PACKAGE = "generated_holdfast"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="module")
def secret(folder: Path) -> str:
    return key(folder, "submit,work,observe")


@pytest.fixture(scope="module")
def url(folder: Path, secret: str) -> Iterator[str]:
    with service(folder, "--keys") as opened:
        yield opened


@pytest.fixture(scope="module")
def document(folder: Path, url: str) -> Path:
    found = folder / "openapi.json"
    with urlopen(f"{url}/openapi.json") as answer:
        found.write_bytes(answer.read())
    return found


def test_the_document_is_openapi_as_its_specification_says(document: Path) -> None:
    described = json.loads(document.read_bytes())

    wrong = list(OpenAPIV31SpecValidator(described).iter_errors())

    assert [str(one) for one in wrong] == []


def test_every_operation_has_a_name_of_its_own_that_reads_as_code(document: Path) -> None:
    paths = json.loads(document.read_bytes())["paths"].values()

    names = [operation["operationId"] for path in paths for operation in path.values()]

    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.islower() for name in names)


@pytest.fixture(scope="module")
def generated(folder: Path, document: Path) -> Iterator[None]:
    done = subprocess.run(
        [
            Path(sys.executable).parent / "openapi-python-client", "generate", "--fail-on-warning",
            "--path", document, "--meta", "none", "--output-path", folder / PACKAGE,
            "--config", _config(folder),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _config(folder: Path) -> Path:
    config = folder / "generator.json"
    config.write_text(json.dumps({"post_hooks": []}))  # no formatting: nobody reads it
    return config


def module(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


def call(name: str, client: object, **more: object) -> Any:  # noqa: ANN401
    """What an operation answered, as the type that the generator made for it."""
    return module(f"api.{name}").sync(client=client, **more)


@pytest.mark.usefixtures("generated")
def test_a_generated_python_client_takes_a_job_through_its_life(url: str, secret: str) -> None:
    models = module("models")
    spec = models.SpecForm(kind="report", queue="generated", payload={"month": 7})

    with module("client").AuthenticatedClient(base_url=url, token=secret) as client:
        form = models.JobRequestForm(spec=spec, job_id="report-7")
        job = call("jobs.enqueue", client, body=form, idempotency_key="once")
        again = call("jobs.enqueue", client, body=form, idempotency_key="once")
        taken = call("grants.claim", client, body=models.Claim(queues=["generated"], owner="w-1"))
        [grant] = taken.grants
        done, token = models.ProgressForm(done=1, total=2), grant.task_token
        alive = models.HeartbeatForm(task_token=token, progress=done, lease="PT1H30M")
        running = call("grants.heartbeat", client, body=alive)
        success = models.SuccessForm(result={"pages": 3})
        ended = call("grants.complete", client, body=models.CompletionForm(task_token=token, success=success))
        page = call("jobs.list_jobs", client, queue="generated", states=[models.State.SUCCEEDED])
        read = call("jobs.status", client, job_id="report-7")
        log = call("jobs.logs", client, job_id="report-7", limit=2)
        rest = call("jobs.logs", client, job_id="report-7", after=log.cursor)
        status = call("registry.registry_job_status", client, job_id="report-7")
        wrong = call("jobs.status", client, job_id="report-8")

    assert (job.state, job.spec.payload, again) == (models.State.QUEUED, {"month": 7}, job)
    assert (running.state, running.progress.total) == (models.State.RUNNING, 2)
    assert running.lease.ttl == "PT5400S"
    assert (ended.state, ended.result) == (models.State.SUCCEEDED, {"pages": 3})
    assert ([one.job_id for one in page.jobs], read) == (["report-7"], ended)
    told = [event.event_type for event in (*log.events, *rest.events)]
    assert told == ["job_queued", "job_claimed", "job_started", "job_succeeded"]
    assert (status.state, status.fencing_token) == ("COMPLETED", grant.fencing_token)
    assert isinstance(wrong, models.Problem)
    assert (wrong.status, wrong.type_, wrong.job_id) == (404, "urn:holdfast:NotFound", "report-8")
    assert wrong.advice


@pytest.mark.usefixtures("generated")
def test_a_generated_python_client_is_told_that_its_key_counts_not(url: str) -> None:
    with module("client").AuthenticatedClient(base_url=url, token="hf_wrong") as client:
        told = call("jobs.status", client, job_id="report-7")

    assert (told.status, told.title) == (401, "Unauthorized")


@pytest.mark.slow
def test_a_generated_typescript_client_has_no_type_errors_and_works(
    url: str, secret: str, document: Path, tmp_path: Path
) -> None:
    folder = node_folder(tmp_path, source=SOURCE)
    programs = folder / "node_modules"
    words = (document, "--output", "schema.d.ts", "--default-non-nullable=false")

    made = node(folder, programs / "openapi-typescript" / "bin" / "cli.js", *words)
    checked = node(folder, programs / "typescript" / "bin" / "tsc")
    done = node(folder, "client.ts", SERVICE_URL=url, SERVICE_KEY=secret)

    assert made.returncode == 0, made.stdout + made.stderr
    assert checked.returncode == 0, checked.stdout
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr


def test_the_lock_file_of_the_typescript_client_pins_every_package_and_names_no_registry() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_bytes())["packages"]

    assert all("integrity" in one for name, one in packages.items() if name)
    assert not [name for name, one in packages.items() if "resolved" in one]
