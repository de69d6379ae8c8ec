"""The recipe for an application of one's own agrees with the image below, the example, and the program."""

import importlib.util
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.sdk.settings import NAMES, variable
from tests.deploy.test_deploy import (
    DEPLOY,
    ROOT,
    STOP_WORKER_SECONDS,
    accepted,
    instructions,
    parsed,
    seconds,
)

APP = DEPLOY / "app"
EXAMPLE = ROOT / "examples" / "web"


def document() -> dict[str, Any]:
    return yaml.safe_load((APP / "compose.yaml").read_text())  # type: ignore[no-any-return]


def test_the_image_is_built_from_what_is_in_the_example() -> None:
    steps = list(instructions(APP / "Containerfile"))
    [base] = [rest for step, rest in steps if step == "FROM"]
    copied = [rest.split()[0] for step, rest in steps if step == "COPY"]
    build = document()["x-app"]["build"]

    assert base == "holdfast:0.1.0"
    assert copied == ["requirements.txt", "."]
    assert (EXAMPLE / "requirements.txt").exists()
    assert (APP / build["context"]).resolve() == EXAMPLE
    assert (EXAMPLE / build["dockerfile"]).resolve() == APP / "Containerfile"


def test_no_package_replaces_one_that_holdfast_pins() -> None:
    [install] = [
        rest for step, rest in instructions(APP / "Containerfile") if step == "RUN" and "pip" in rest
    ]
    freeze, add, check = (one.strip() for one in install.split("&&"))

    assert freeze == "pip freeze --exclude holdfast > /tmp/pinned.txt"
    assert "--constraint /tmp/pinned.txt -r /tmp/requirements.txt" in add
    assert check == "pip check"


def test_it_runs_as_the_user_of_the_image_below_and_with_no_store_of_its_own() -> None:
    own = dict(instructions(APP / "Containerfile"))
    below = dict(instructions(DEPLOY / "Containerfile"))

    assert own["USER"] == below["USER"]
    assert own["ENV"] == "HOLDFAST_STORE="
    assert json.loads(own["ENTRYPOINT"]) == []


@pytest.mark.parametrize("name", ["web", "tasks"])
def test_what_is_started_is_there(name: str) -> None:
    found = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    text = (EXAMPLE / f"{name}.py").read_text(encoding="utf-8")
    started = {"web": r"^web = FastAPI\(", "tasks": r"^app = holdfast\.App\("}[name]

    assert found is not None
    assert re.search(started, text, re.MULTILINE)


def test_the_web_process_is_asked_where_it_listens() -> None:
    steps = dict(instructions(APP / "Containerfile"))
    program, app, *options = json.loads(steps["CMD"])
    asked = steps["HEALTHCHECK"].partition("CMD ")[2]

    assert (program, app) == ("uvicorn", "web:web")
    assert options[options.index("--port") + 1] == steps["EXPOSE"]
    assert f"http://127.0.0.1:{steps['EXPOSE']}/healthz" in json.loads(asked)[2]
    assert '@web.get("/healthz")' in (EXAMPLE / "web.py").read_text(encoding="utf-8")
    [port] = document()["services"]["web"]["ports"]
    assert port == f"127.0.0.1:{steps['EXPOSE']}:{steps['EXPOSE']}"


def test_the_worker_is_a_command_that_the_program_takes_and_has_time_to_leave() -> None:
    worker = document()["services"]["worker"]
    program, *words = worker["command"]
    options = parsed(words).params

    assert program == "holdfast"
    assert accepted(words)
    leave: timedelta = options["leave"]
    assert leave + timedelta(seconds=STOP_WORKER_SECONDS) < timedelta(
        seconds=seconds(worker["stop_grace_period"])
    )
    assert Path(options["spool"]).is_relative_to(worker["volumes"][0])
    assert f":{options['metrics'][1]}/metrics" in worker["healthcheck"]["test"][3]


def test_both_have_the_same_store_and_the_secrets_are_those_of_the_other_composition() -> None:
    whole = document()
    there = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    shared = whole["x-app"]

    assert set(shared["environment"]) <= {variable(name) for name in NAMES}
    assert shared["environment"] == there["x-store"]
    assert whole["services"]["db"] == there["services"]["db"]
    for name, secret in whole["secrets"].items():
        assert (APP / secret["file"]).resolve() == (DEPLOY / there["secrets"][name]["file"]).resolve()
    for name in ("web", "worker"):
        one = whole["services"][name]
        assert one["environment"] == shared["environment"], name
        assert one["secrets"] == ["pgpass"], name
