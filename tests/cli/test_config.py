"""Settings: flags before the environment before the file, through one parser."""

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import click
import pytest

from holdfast.cli.flag_defaults import settable_options
from holdfast.cli.serve import serve
from holdfast.cli.worker import worker
from holdfast.core.errors import Invalid
from holdfast.sdk.app import App
from holdfast.sdk.client import Client
from holdfast.sdk.open import DEFAULT_STORE, chosen_key, own_environment
from holdfast.sdk.settings import NAMES, SETTINGS, variable
from holdfast.sdk.settings_file import search_paths
from holdfast.server.app import SERVICES
from holdfast.worker.environment import own_keys
from tests.cli.settings_files import invoke, shown, write

pytestmark = pytest.mark.usefixtures("folder")

COMMANDS = {"serve": serve, "worker": worker}
FLAG_ONLY = {
    "serve": {"store", "outputs", "config", "host", "port"},
    "worker": {"store", "outputs", "config", "name", "drain"},
}
"""Flags that are not settings: what is one for all, what is part of another one, and what makes sense for
one process only."""

GUIDE = Path(__file__).parents[2] / "docs" / "configuration.md"


def params(table: str, *flags: str) -> dict[str, object]:
    """What the command would be called with."""
    with COMMANDS[table].make_context(table, list(flags)) as ctx:
        return dict(ctx.params)


def sample(table: str, option: click.Option) -> str:
    """A value that the option takes, other than its default."""
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    if option.is_flag:
        return "true"
    with COMMANDS[table].make_context(table, []) as ctx:
        for text in (*map(str, reversed(choices)), "127.0.0.1:7", "jobs", "7", "https://a.example"):
            try:
                value = option.type_cast_value(ctx, [text] if option.multiple else text)
            except click.BadParameter:
                continue
            if value != ctx.params[option.name]:
                return text
    raise AssertionError(f"no sample suits {option.name}")


@pytest.mark.parametrize("name", [name for name in NAMES if "." in name])
def test_every_setting_reaches_its_command_from_the_file_and_from_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    table, _, key = name.partition(".")
    option = settable_options(COMMANDS[table])[name]
    text = sample(table, option)
    default = params(table)
    flagged = params(table, option.opts[0], *([] if option.is_flag else [text]))
    plain = option.is_flag or isinstance(option.type, click.types.IntParamType)

    file = write(folder / "holdfast.toml", f"[{table}]", f"{key} = {text if plain else repr(text)}")
    assert params(table) == flagged != default
    file.unlink()
    assert params(table) == default
    monkeypatch.setenv(variable(name), text)
    assert params(table) == flagged


@pytest.mark.parametrize("table", COMMANDS)
def test_every_flag_is_a_setting_or_known_to_be_none(table: str) -> None:
    flags = {
        max(option.opts, key=len).removeprefix("--").replace("-", "_")
        for option in COMMANDS[table].params
        if isinstance(option, click.Option)
    }

    assert set(SETTINGS[table]) == flags - FLAG_ONLY[table]
    assert flags >= FLAG_ONLY[table]


@pytest.mark.parametrize(
    ("name", "file", "environment", "flags", "wins"),
    [
        ("serve.listen", '"h:1"', "h:2", ["--listen", "h:3"], ("h", 3)),
        ("serve.queue_limit", "1", "2", ["--queue-limit", "3"], 3),
        ("serve.keys", "true", "yes", ["--no-keys"], False),
        ("worker.queue", '["a", "b"]', "c,d", ["-q", "e", "-q", "f"], ("e", "f")),
        ("worker.region", '"a"', "b", ["--region", "c"], "c"),
        ("worker.pass_env", '["A*"]', "B", ["--pass-env", "C"], ("C",)),
    ],
)
def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    name: str,
    file: str,
    environment: str,
    flags: list[str],
    wins: object,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
) -> None:
    table, _, key = name.partition(".")
    option = settable_options(COMMANDS[table])[name]

    path = write(folder / "holdfast.toml", f"[{table}]", f"{key} = {file}")
    assert shown()[name][1] == f"file {path}:{name}"
    by_file = params(table)[option.name]
    monkeypatch.setenv(variable(name), environment)
    assert shown()[name] == (environment, f"env {variable(name)}")
    by_environment = params(table)[option.name]

    assert params(table, *flags)[option.name] == wins
    assert wins not in (by_file, by_environment)


def test_the_environment_may_turn_off_what_the_file_turns_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "holdfast.toml", "[serve]", "keys = true")
    assert params("serve")["keys"] is True
    monkeypatch.setenv("HOLDFAST_SERVE_KEYS", "off")
    assert params("serve")["keys"] is False


def test_commands_and_programs_find_the_same_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Client().url, shown()["store"]) == (DEFAULT_STORE, (DEFAULT_STORE, "default"))
    path = write(folder / "holdfast.toml", 'store = "sqlite:///file.db"')
    assert Client().url == App().url == "sqlite:///file.db"
    assert shown()["store"] == ("sqlite:///file.db", f"file {path}:store")
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:///env.db")
    assert Client().url == App().url == "sqlite:///env.db"
    assert shown()["store"] == ("sqlite:///env.db", "env HOLDFAST_STORE")
    assert shown("--store", "memory://")["store"] == ("memory://", "flag --store")
    assert Client("memory://").url == "memory://"


def test_a_program_that_says_which_store_reads_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "holdfast.toml", "this is no TOML")

    assert Client("memory://").url == "memory://"
    with pytest.raises(Invalid, match=r"holdfast\.toml is not TOML: .*line 1"):
        Client()
    monkeypatch.setenv("HOLDFAST_STORE", "memory://")
    assert Client().url == "memory://"


def test_the_first_file_counts_alone(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = write(tmp_path / "named.toml", 'store = "sqlite:///named.db"')
    other = write(tmp_path / "other.toml", 'store = "sqlite:///other.db"')
    own = write(tmp_path / "own/holdfast/holdfast.toml", "[serve]", "keys = true")
    assert shown()["serve.keys"] == (True, f"file {own}:serve.keys")

    write(folder / "holdfast.toml", 'store = "sqlite:///here.db"')
    found = shown()
    assert (found["store"][0], found["serve.keys"][0]) == ("sqlite:///here.db", False)
    assert shown(HOLDFAST_CONFIG=str(named))["store"][0] == "sqlite:///named.db"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(named))
    for words in (["--config", str(other), "config"], ["config", "--config", str(other)]):
        result = invoke(*words)
        assert "sqlite:///other.db" in result.stdout
        assert result.stderr == f"File: {other}\n"
        assert os.environ["HOLDFAST_CONFIG"] == str(named)
    assert shown(HOLDFAST_CONFIG=os.devnull)["store"] == (DEFAULT_STORE, "default")


def test_without_a_file_it_is_said_where_it_was_looked_for(folder: Path) -> None:
    result = invoke("config")

    assert search_paths(os.environ)[0] == folder / "holdfast.toml"
    assert all(str(place) in result.stderr for place in search_paths(os.environ))
    assert result.stdout.splitlines()[0].split() == ["NAME", "VALUE", "ORIGIN"]
    assert {line.split()[0] for line in result.stdout.splitlines()[1:]} == {*NAMES, "key"}


def test_a_key_comes_from_the_file_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = tmp_path / "key", tmp_path / "other"
    write(key, "hf_by_file\n")
    write(other, "hf_by_variable\n")
    own = write(tmp_path / "own/holdfast/holdfast.toml", f'key_file = "{key}"')
    assert chosen_key() == "hf_by_file"
    assert own_keys(own_environment()) == ["hf_by_file"]

    monkeypatch.setenv("HOLDFAST_KEY", "hf_itself")
    assert chosen_key() == "hf_itself"
    assert own_keys(own_environment()) == ["hf_itself"]
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(other))
    assert chosen_key() == "hf_by_variable"
    monkeypatch.delenv("HOLDFAST_KEY")
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    key.unlink()
    with pytest.raises(Invalid, match=f"{own}:key_file cannot be read"):
        chosen_key()


def test_a_server_needs_nothing_but_its_file(folder: Path) -> None:
    write(
        folder / "holdfast.toml",
        'store = "sqlite:///jobs.db"',
        "[serve]",
        'listen = "127.0.0.1:0"',
        'services = ["jobs", "events"]',
    )
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = next((line for line in process.stderr if " serves " in line), "")
            found = re.match(r"(http://127.0.0.1:\d+) serves sqlite:///jobs.db \(jobs, events\)", said)
            assert found is not None, said
            with urllib.request.urlopen(f"{found[1]}/health", timeout=60) as answer:
                assert answer.status == 200
        finally:
            process.terminate()
            process.communicate(timeout=120)
    assert (folder / "jobs.db").exists()


def guide_example() -> str:
    [example] = re.findall(r"^```toml\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(example)


def test_the_example_in_the_guide_has_every_setting_and_is_right(tmp_path: Path) -> None:
    whole = re.sub(r"^# (?=\w+ = )", "", guide_example(), flags=re.MULTILINE)
    path = write(tmp_path / "example.toml", whole)

    found = shown("--config", str(path))

    assert {name: origin for name, (_, origin) in found.items() if name != "key"} == {
        name: f"file {path}:{name}" for name in NAMES
    }


def test_the_example_in_the_guide_changes_nothing_where_it_is_copied(folder: Path) -> None:
    before = {table: params(table) for table in COMMANDS}
    values = {name: value for name, (value, _) in shown().items() if "." not in name}

    write(folder / "holdfast.toml", guide_example())

    assert {table: params(table) for table in COMMANDS} == before
    assert {name: shown()[name][0] for name in values} == values


def test_every_page_that_shows_a_server_starting_shows_all_its_services() -> None:
    root = GUIDE.parents[1]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("examples/**/*.md")]
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines()]
    started = [line for line in lines if re.search(r"serves \w+:///\S+ \(", line)]

    assert len(started) > 2
    for line in started:
        assert f"({', '.join(SERVICES)})" in line
    for name in SERVICES:
        assert name in serve_help("services")


def serve_help(name: str) -> str:
    [option] = [one for one in serve.params if one.name == name]
    assert isinstance(option, click.Option)
    return option.help or ""
