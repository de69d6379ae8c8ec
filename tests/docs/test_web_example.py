"""The web example, as its readers run it: the application in a server, and a real worker beside it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.server.programs import PATIENCE_SECONDS, environment, program, until
from verify.postgres_server import free_port


class Web:
    """The application, and the folder that it runs in."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / 'jobs.db'}"
        self.port = port

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any, str | None]:
        """Return the status, the body and the location of a response."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            text = None if body is None else json.dumps(body)
            line.request(method, path, text, {"content-type": "application/json"})
            response = line.getresponse()
            return response.status, json.loads(response.read()), response.getheader("location")
        finally:
            line.close()

    def healthy(self) -> bool | None:
        try:
            return self.ask("GET", "/healthz")[0] == 200 or None
        except OSError:
            return None

    def create(self, text: str, **more: object) -> str:
        status, job, location = self.ask("POST", "/counts", {"text": text, **more})
        assert status == 202, job
        assert location == f"/jobs/{job['job_id']}"
        return str(job["job_id"])

    def drain(self) -> None:
        """Run a worker until nothing is left."""
        command = (sys.executable, "-m", "holdfast", "worker", "tasks:app", "--drain")
        given = environment(HOLDFAST_STORE=self.store)
        subprocess.run(command, cwd=self.folder, env=given, check=True, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("example") / "web"
    shutil.copytree(ROOT / "examples" / "web", folder, ignore=shutil.ignore_patterns("__pycache__"))
    here = Web(folder, free_port())
    server = (sys.executable, "-m", "uvicorn", "web:web", "--port", str(here.port))
    with program(folder / "web.log", *server, cwd=folder, HOLDFAST_STORE=here.store) as process:
        until(here.healthy, "the application")
        yield here
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    said = (folder / "web.log").read_text(encoding="utf-8")
    assert "Application shutdown complete" in said, "the lifespan has ended"
    assert "Traceback" not in said


def test_a_request_makes_a_job_and_another_reads_its_result(web: Web) -> None:
    job_id = web.create("to be\nor not to be")
    _, before, _ = web.ask("GET", f"/jobs/{job_id}")

    web.drain()

    _, after, _ = web.ask("GET", f"/jobs/{job_id}")
    assert (before["state"], before["result"]) == ("queued", None)
    assert (after["state"], after["done"], after["total"]) == ("succeeded", 2, 2)
    assert after["result"] == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_a_request_that_is_sent_again_makes_no_second_job(web: Web) -> None:
    first = web.create("a", request_id="order-7")
    again = web.create("a", request_id="order-7")
    status, other, _ = web.ask("POST", "/counts", {"text": "b", "request_id": "order-7"})

    assert again == first
    assert (status, "for a different request" in other["detail"]) == (409, True)


def test_what_is_refused_is_no_internal_error(web: Web) -> None:
    job_id = web.create("a")

    _, cancelled, _ = web.ask("DELETE", f"/jobs/{job_id}")

    assert cancelled["state"] == "cancelled"
    assert web.ask("GET", "/jobs/nobody")[0] == 404
    assert web.ask("POST", "/counts", {})[0] == 422


def test_the_packages_it_names_are_those_that_are_tested() -> None:
    wanted = (ROOT / "examples" / "web" / "requirements.txt").read_text(encoding="utf-8").split()
    locked = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")

    assert wanted
    for one in wanted:
        assert f"\n{one} " in locked
