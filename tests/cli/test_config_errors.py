"""Settings that are refused: mistyped ones, files that others could have written, and secrets."""

import os
from pathlib import Path

import pytest

from holdfast.sdk.settings import read_settings
from tests.cli.settings_files import invoke, shown, write

pytestmark = pytest.mark.usefixtures("folder")

CANARY = "canary-5f1e"


def test_all_that_is_wrong_is_said_at_once_with_its_place_and_what_was_meant(folder: Path) -> None:
    path = write(
        folder / "holdfast.toml",
        'stroe = "sqlite:///x.db"',
        "ca_file = 5",
        'traces = "oltp"',
        "[serve]",
        'lisen = "127.0.0.1:1"',
        'poll = "70s"  # too long',
        'keys = "yes"',
        'services = ["jobs", "evnts"]',
        "queue_limit = 0",
        "concurrency = 3",
        "[worker]",
        "queue = []",
        'concurrency = "4"',
        "lease = true",
        "[servr]",
        "keys = true",
        "[servr.deep]",
    )
    expected = [
        ("stroe", 1, "no such setting; did you mean store?"),
        ("ca_file", 2, "this is text"),
        ("traces", 3, "traces are off or otlp, not 'oltp'"),
        ("serve.lisen", 5, "did you mean serve.listen?"),
        ("serve.poll", 6, "'70s' is not from 0.0 s to 60 s"),
        ("serve.keys", 7, "expected true or false, not 'yes'"),
        ("serve.services", 8, "'evnts' is not a service"),
        ("serve.queue_limit", 9, "0 is not in the range"),
        ("serve.concurrency", 10, "did you mean worker.concurrency?"),
        ("worker.queue", 12, "the list is empty"),
        ("worker.concurrency", 13, "expected a whole number, not '4'"),
        ("worker.lease", 14, "expected text, in quotes, not True"),
        ("servr.keys", 16, "did you mean the table [serve]?"),
    ]

    lines = invoke("config", code=2).stderr.removeprefix("Error: ").splitlines()

    assert len(lines) == len(expected) + 1, lines
    for name, line, words in expected:
        assert any(
            found.startswith(f"file {path}:{name} (line {line}): ") and words in found for found in lines
        ), name
    assert any(":servr.deep: there is no such setting" in found for found in lines)
    for command in ("serve", "worker", "list"):
        assert "did you mean serve.listen?" in invoke(command, code=2).stderr
    for command in ("serve", "worker", "config"):
        invoke(command, "--help")


def test_a_variable_that_is_no_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_POSTGRES", "HOLDFAST_WIRE_LOAD", "HOLDFAST_JOB_ID", "HOLDFAST_PORT"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("HOLDFAST_SERVE_LISTNE", "h:1")
    monkeypatch.setenv("HOLDFAST_WORKER_CONCURRENCY", "many")
    monkeypatch.setenv("HOLDFAST_WORKER_X", "")

    lines = invoke("config", code=2).stderr.removeprefix("Error: ").splitlines()

    meant = "there is no such setting; did you mean HOLDFAST_SERVE_LISTEN?"
    assert lines[0] == f"env HOLDFAST_SERVE_LISTNE: {meant}"
    assert lines[1].startswith("env HOLDFAST_WORKER_X: there is no such setting; holdfast config")
    assert lines[2].startswith("env HOLDFAST_WORKER_CONCURRENCY: 'many' is not a valid integer")
    assert len(lines) == 3


def test_variables_of_services_in_a_kubernetes_cluster_are_left_alone() -> None:
    cluster = {
        "HOLDFAST_SERVE_SERVICE_HOST": "10.0.0.1",
        "HOLDFAST_SERVE_SERVICE_PORT_HTTP": "8080",
        "HOLDFAST_SERVE_PORT": "tcp://10.0.0.1:8080",
        "HOLDFAST_SERVE_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    assert read_settings(cluster).problems == ()
    assert read_settings({"HOLDFAST_SERVE_PORT": "8080"}).problems != ()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(folder: Path, mode: int) -> None:
    path = write(folder / "holdfast.toml", 'store = "memory://"')
    path.chmod(mode)

    for environment in ({}, {"HOLDFAST_CONFIG": str(path)}):
        assert f"chmod go-w {path}" in invoke("config", code=2, environment=environment).stderr


def test_a_file_of_another_user_counts_only_if_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write(folder / "holdfast.toml", 'store = "memory://"')
    _give_away(path, monkeypatch)
    assert "belongs to another user" in invoke("config", code=2).stderr
    assert shown(HOLDFAST_CONFIG=str(path))["store"][0] == "memory://"

    path.unlink()
    path.symlink_to(write(tmp_path / "mine.toml", 'store = "memory://"'))
    _give_away(path, monkeypatch)
    assert "belongs to another user" in invoke("list", code=2).stderr


def _give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root gives the file to another user; other users pretend to be another one."""
    if os.getuid() == 0:
        os.lchown(path, 54_321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54_321)


@pytest.mark.parametrize(
    "line",
    ['store = "HTTPS://evil"', 'outputs = "s3://evil"', 'key_file = "k"', 'ca_file = "c"'],
)
def test_a_file_that_is_only_found_here_does_not_decide_who_gets_a_key(
    folder: Path, tmp_path: Path, line: str
) -> None:
    path = write(folder / "holdfast.toml", line)
    assert f"name it: HOLDFAST_CONFIG={path}" in invoke("config", code=2).stderr
    assert f"name it: HOLDFAST_CONFIG={path}" in invoke("list", code=2).stderr

    shown(HOLDFAST_CONFIG=str(path))
    path.unlink()
    write(tmp_path / "own/holdfast/holdfast.toml", line)
    shown()


def test_no_secret_is_ever_shown(folder: Path) -> None:
    key = {"HOLDFAST_KEY": CANARY}
    assert shown(**key)["key"] == ("set", "env HOLDFAST_KEY")
    assert shown()["key"] == ("not set", "default")

    path = write(folder / "holdfast.toml", f'store = "postgresql://ana:{CANARY}@db/jobs"')
    for words in (["config"], ["config", "--json"]):
        result = invoke(*words, environment=key)
        assert "postgresql://ana:***@db/jobs" in result.stdout
        assert CANARY not in result.output
    write(path, f'key = "{CANARY}"', f'tokn = "{CANARY}"', f'store = ["{CANARY}"]')
    for words in (["config"], ["list"]):
        result = invoke(*words, code=2)
        assert "name that with key_file" in result.stderr
        assert CANARY not in result.output


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.toml")

    assert "does not exist" in invoke("serve", "--config", missing, code=2).stderr
    result = invoke("config", code=2, environment={"HOLDFAST_CONFIG": missing})
    assert f"{missing} cannot be read: No such file" in result.stderr
