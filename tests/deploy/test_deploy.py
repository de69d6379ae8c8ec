"""What is in deploy/ agrees with the program, and with itself."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from string import Template
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.sdk.open import open_local
from holdfast.sdk.settings import NAMES, read_settings, variable
from holdfast.sdk.settings_file import CONFIG_VARIABLE
from holdfast.sdk.store_url import StoreUrl
from holdfast.server.http_server import IDLE_SECONDS, SHUTDOWN_SECONDS
from holdfast.server.limits import PUBLISH_IDLE_SECONDS_MAX
from tests.server.running_server import serving

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SYSTEMD = DEPLOY / "systemd"
UNITS = {"holdfast.service": "holdfast", "holdfast-worker@.service": "holdfast-worker"}
PROGRAM = "/opt/holdfast/bin/holdfast"
STOP_WORKER_SECONDS = 20
"""What docs/workers.md asks for beyond --leave."""

Unit = dict[str, list[str]]


def unit(name: str) -> Unit:
    """Every setting of a unit with its values, in order."""
    found: Unit = defaultdict(list)
    for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[key].append(value)
    return found


def environment(of: Unit) -> dict[str, str]:
    return dict(value.split("=", 1) for value in of["Environment"])


def parsed(words: list[str]) -> click.Context:
    """A call as the program itself takes it apart, with every value checked; nothing is run."""
    context = cli.make_context("holdfast", list(words), resilient_parsing=False)
    command: click.Command = cli
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, below, rest = command.resolve_command(context, rest)
        assert below is not None
        assert name is not None
        context = below.make_context(name, rest, parent=context)
        command = below
    return context


def accepted(words: list[str]) -> bool:
    try:
        parsed(words)
    except click.exceptions.Exit:  # --help and the like
        return True
    except click.ClickException:
        return False
    return True


def seconds(text: str) -> float:
    return 60 * float(text[:-1]) if text.endswith("m") else float(text.removesuffix("s"))


def instructions(path: Path) -> Iterator[tuple[str, str]]:
    """Each instruction of a Containerfile and what follows it, lines joined, variables filled in."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    known: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            if word == "ARG":
                name, _, known[name] = rest.partition("=")
            yield word, Template(rest).safe_substitute(known)


def services() -> dict[str, dict[str, Any]]:
    return document()["services"]  # type: ignore[no-any-return]


def document() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_the_program_takes(name: str) -> None:
    program, *words = shlex.split(unit(name)["ExecStart"][0].replace("%i", "reports"))

    assert program == PROGRAM
    assert accepted(words)
    assert not accepted([*words, "--no-such-option"])


@pytest.mark.parametrize(("name", "user"), UNITS.items())
def test_a_unit_keeps_everything_in_the_folder_of_its_user(name: str, user: str) -> None:
    found, state = unit(name), f"/var/lib/{user}"
    users = (SYSTEMD / "sysusers.conf").read_text(encoding="utf-8")

    assert found["User"] == found["Group"] == found["StateDirectory"] == [user]
    assert found["WorkingDirectory"] == [state]
    assert re.search(rf'^u {user} +- "[^"]+" +{state}$', users, re.MULTILINE)
    for path in re.findall(r"/var/lib/\S+", found["ExecStart"][0]):
        assert Path(path).is_relative_to(state)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_shut_in_and_can_still_read_the_id_of_the_boot(name: str) -> None:
    found = unit(name)

    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "ProtectKernelTunables"):
        assert found[key] == ["yes"], key
    assert found["ProtectSystem"] == ["strict"]
    assert found["CapabilityBoundingSet"] == [""]
    assert "ProcSubset" not in found  # it would hide /proc/sys/kernel/random/boot_id
    assert int(found["LimitNOFILE"][0]) > 10_000 + 500
    assert found["RestartPreventExitStatus"] == ["2"]


def test_nobody_is_killed_before_the_time_it_may_take_to_stop() -> None:
    server, worker = (unit(name) for name in UNITS)
    leave = parsed(shlex.split(worker["ExecStart"][0])[1:]).params["leave"]
    here = services()
    there = parsed(here["worker"]["command"]).params["leave"]

    assert int(server["TimeoutStopSec"][0]) > SHUTDOWN_SECONDS
    assert worker["KillMode"] == ["mixed"]
    for given, waits in (
        (leave, seconds(worker["TimeoutStopSec"][0])),
        (there, seconds(here["worker"]["stop_grace_period"])),
    ):
        assert given + timedelta(seconds=STOP_WORKER_SECONDS) < timedelta(seconds=waits)
    assert seconds(here["server"]["stop_grace_period"]) > SHUTDOWN_SECONDS


def test_the_units_find_their_settings_their_key_and_each_other(tmp_path: Path) -> None:
    server, worker = (environment(unit(name)) for name in UNITS)
    [credential] = unit("holdfast-worker@.service")["LoadCredential"]
    files = [Path(found[CONFIG_VARIABLE]) for found in (server, worker)]
    settings = [tomllib.loads((SYSTEMD / file.name).read_text()) for file in files]

    assert {file.parent for file in files} == {Path("/etc/holdfast")}
    assert worker["HOLDFAST_KEY_FILE"] == f"%d/{credential.partition(':')[0]}"
    assert StoreUrl(settings[0]["store"]).file.parent == Path("/var/lib/holdfast")
    assert settings[1]["store"] == f"http://{settings[0]['serve']['listen']}"
    for file in files:
        copy = tmp_path / file.name
        copy.write_bytes((SYSTEMD / file.name).read_bytes())
        copy.chmod(0o644)
        assert read_settings({CONFIG_VARIABLE: str(copy)}).problems == ()
        shown = CliRunner(env={CONFIG_VARIABLE: str(copy)}).invoke(cli, ["config", "--json"])
        assert shown.exit_code == 0, shown.output


def test_systemd_itself_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        assert set(re.findall(r"^\[(\w+)\]$", text, re.MULTILINE)) == {"Unit", "Service", "Install"}
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable))
    if (analyze := shutil.which("systemd-analyze")) is None:
        return  # what can be said without it is said above
    for name in UNITS:
        for words in (["verify"], ["security", "--offline=true", "--threshold=20", "--no-pager"]):
            done = subprocess.run(
                [analyze, *words, str(tmp_path / name)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stderr == ""


def test_the_image_is_built_from_what_is_there_and_pinned() -> None:
    steps = list(instructions(DEPLOY / "Containerfile"))
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        word
        for step, rest in steps
        if step == "COPY" and not rest.startswith("--from")
        for word in rest.split()[:-1]
    ]
    bases = {rest.split()[0] for step, rest in steps if step == "FROM"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path}" in ignored
    assert ignored[0] == "*"
    for base in bases | {services()["db"]["image"]}:
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*", base), base
    for lock in (ROOT / "requirements.lock", DEPLOY / "build.lock"):
        assert "--hash=sha256:" in lock.read_text(encoding="utf-8")
    [builder] = project["build-system"]["requires"]
    assert f"\n{builder} " in (DEPLOY / "build.lock").read_text(encoding="utf-8")
    tag = f"holdfast:{project['project']['version']}"
    assert {one["image"] for name, one in services().items() if name != "db"} == {tag}


def test_the_image_runs_the_program_itself_and_not_as_root() -> None:
    steps = dict(instructions(DEPLOY / "Containerfile"))  # the last of each
    variables = dict(word.split("=", 1) for word in steps["ENV"].split())

    assert json.loads(steps["ENTRYPOINT"]) == ["holdfast"]
    assert accepted(json.loads(steps["CMD"]))
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", steps["USER"])
    assert steps["STOPSIGNAL"] == "SIGTERM"
    assert StoreUrl(variables["HOLDFAST_STORE"]).file.parent == Path(steps["VOLUME"])
    assert steps["WORKDIR"] == steps["VOLUME"]


async def test_the_health_check_tells_a_server_that_serves_from_one_that_does_not() -> None:
    words = dict(instructions(DEPLOY / "Containerfile"))["HEALTHCHECK"].partition("CMD ")[2]
    python, flag, program = json.loads(words)
    assert (python, flag) == ("python", "-c")

    async def outcome(source: str) -> int | None:
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-c", source, stderr=asyncio.subprocess.DEVNULL
        )
        return await asyncio.wait_for(done.wait(), 60)

    registry = await open_local("memory://")
    async with serving(registry) as served:
        there = await outcome(program.replace("http://127.0.0.1:8080", served.url))
    await registry.close()
    assert (there, await outcome(program.replace("http://127.0.0.1:8080", served.url))) == (0, 1)


def test_the_composition_holds_together() -> None:
    whole, here = document(), services()
    known = {variable(name) for name in NAMES}

    for name, one in here.items():
        assert set(one.get("depends_on", {})) <= set(here)
        assert set(one.get("secrets", ())) <= set(whole["secrets"])
        assert {mount.partition(":")[0] for mount in one.get("volumes", ())} <= set(whole["volumes"])
        ours = {key for key in one["environment"] if key.startswith("HOLDFAST_")}
        assert ours <= known
        assert bool(ours) == (name != "db")
    for name in ("server", "worker"):
        assert accepted(here[name]["command"]), name
    script = here["keys"]["command"][0]
    [call] = re.findall(r"holdfast (keys [^>]+) >", script)
    assert accepted(shlex.split(call))
    assert "admin" not in call
    assert not accepted(["keys", "create", "worker", "--may", "no-such-scope"])
    passfile = here["server"]["environment"]["HOLDFAST_STORE"].partition("passfile=")[2]
    assert passfile.rpartition("/")[2] in here["server"]["secrets"]
    key = Path(here["worker"]["environment"]["HOLDFAST_KEY_FILE"])
    assert f"keys:{key.parent}:ro" in here["worker"]["volumes"]
    assert f"> {key.name}" in script


def test_nginx_passes_streams_on_as_they_come() -> None:
    text = (DEPLOY / "proxy" / "nginx.conf").read_text(encoding="utf-8")
    directives = {
        line.split()[0]: line.partition(";")[0].split()[1:]
        for line in text.splitlines()
        if ";" in line and not line.lstrip().startswith("#")
    }

    assert text.count("{") == text.count("}")
    assert directives["proxy_buffering"] == directives["proxy_request_buffering"] == ["off"]
    assert directives["proxy_read_timeout"] == ["1h"]
    assert "location = /job.v1.JobEventsService/PublishJobEvents" in text
    quiet = 60 * int(directives["client_body_timeout"][0].removesuffix("m"))
    assert quiet > PUBLISH_IDLE_SECONDS_MAX
    assert directives["client_max_body_size"] == ["0"], "the last one: that of publish streams"
    assert directives["proxy_http_version"] == ["1.1"]
    assert seconds(directives["keepalive_timeout"][0]) < IDLE_SECONDS
    publishing = text.partition("PublishJobEvents {")[2]
    assert seconds(publishing.partition("client_body_timeout ")[2].partition(";")[0]) > 60
    assert "client_max_body_size 0;" in publishing


def test_caddy_notices_that_a_client_has_left() -> None:
    """A negative flush_interval makes it go on for a client that is gone (caddy PR 4952): a worker that was
    killed while it waited was given the next job, for as long as its lease."""
    text = (DEPLOY / "proxy" / "Caddyfile").read_text(encoding="utf-8")
    directives = [line.split() for line in text.splitlines() if not line.startswith("#")]

    assert text.count("{") == text.count("}")
    assert ["versions", "1.1"] in directives
    assert not any("flush_interval" in words for words in directives)
