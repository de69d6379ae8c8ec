"""The guide to REST: its programs, run as they stand there, against a real server."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.server.node_programs import NODE
from tests.server.programs import PATIENCE_SECONDS, environment, key, program, service

PAGE = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
_PROGRAM = re.compile(r"^```(?:sh|js) (\S+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module", params=["without a key", "with a key"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What the programs find in their environment."""
    folder = tmp_path_factory.mktemp("service")
    keyed = request.param == "with a key"
    more = {"HOLDFAST_KEY": key(folder, "submit,work,observe")} if keyed else {}
    with service(folder, *(["--keys"] if keyed else [])) as url:
        yield {"HOLDFAST_URL": url, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in _PROGRAM.findall(PAGE):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_walkthrough_in_curl_prints_what_the_guide_says(folder: Path, server: dict[str, str]) -> None:
    shown = re.search(r"^```sh walkthrough.sh.*?^```\n\n```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    bash = shutil.which("bash")
    assert shown is not None
    assert bash is not None

    done = subprocess.run(
        [bash, "-eu", "-o", "pipefail", "walkthrough.sh"],
        cwd=folder,
        env=environment(**server),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )

    assert (done.stdout.rstrip(), done.returncode) == (shown[1].rstrip(), 0), done.stderr


def test_the_worker_and_the_client_in_javascript_work_together(folder: Path, server: dict[str, str]) -> None:
    log = folder / "worker.log"

    with program(log, NODE, "worker.mjs", cwd=folder, **server):
        done = subprocess.run(
            [NODE, "client.mjs"],
            cwd=folder,
            env=environment(**server),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    assert done.stdout.splitlines() == [
        "job_queued",
        "job_claimed",
        "job_started",
        "job_succeeded",
        "stream-end",
        "{ path: 'cat.png', width: 320 }",
    ], done.stderr + log.read_text()
