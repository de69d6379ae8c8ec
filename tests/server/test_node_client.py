"""A client in Node: connect-node, with JSON and with binary, over a real server."""

import filecmp
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.node_programs import EXAMPLES, NODE, node, node_folder
from tests.server.programs import ROOT, environment, service

CLIENT = Path(__file__).parent / "node_client.ts"
QUEUE_LIMIT = 15


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    with service(folder, "--queue-limit", str(QUEUE_LIMIT)) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "binary"])
def test_a_client_in_node_gets_every_answer_it_relies_on(form: str, url: str, tmp_path: Path) -> None:
    folder = node_folder(tmp_path, CLIENT)
    claims = CLIENT.read_text(encoding="utf-8").count('\n  test("')
    more = {"SERVICE_URL": url, "FORMAT": form, "QUEUE_LIMIT": str(QUEUE_LIMIT)}

    options = ("--test", "--test-reporter=tap", "--test-timeout=60000")
    done = node(folder, *options, CLIENT.name, **more)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^# (?:pass|fail) (\d+)$", done.stdout, re.MULTILINE) == [str(claims), "0"]


@pytest.mark.slow
def test_the_typescript_has_no_type_errors(tmp_path: Path) -> None:
    folder = node_folder(tmp_path, CLIENT)

    done = node(folder, folder / "node_modules" / "typescript" / "bin" / "tsc")

    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_generated_typescript_is_current(tmp_path: Path) -> None:
    folder = node_folder(tmp_path)
    (folder / "generated" / "job" / "v1" / "job_pb.ts").unlink()

    subprocess.run(
        [
            Path(sys.executable).parent / "buf",
            "generate",
            ROOT / "proto",
            "--path",
            ROOT / "proto" / "job",
        ],
        cwd=folder,
        env=environment(PATH=os.pathsep.join([str(NODE.parent), os.environ["PATH"]])),
        check=True,
    )

    same = filecmp.dircmp(folder / "generated" / "job" / "v1", EXAMPLES / "generated/job/v1")
    assert (same.same_files, same.left_only, same.right_only) == (["job_pb.ts"], [], [])


def test_the_lock_file_pins_every_package_and_names_no_host() -> None:
    text = (EXAMPLES / "package-lock.json").read_text(encoding="utf-8")

    packages = json.loads(text)["packages"]

    assert "://" not in text
    assert all("integrity" in one for name, one in packages.items() if name)
