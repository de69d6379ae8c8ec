"""The documentation: what is generated is current, what is linked exists, what is typed runs."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import click
import pytest

from holdfast.cli.main import cli
from holdfast.core.job import Job, Lease
from holdfast.sdk.open import open_registry
from tests.docs.pages import ROOT, blocks, differences, play

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CALL = re.compile(r"(?:^|[|;&(]\s*)(?:\w+=\S*\s+)*holdfast\b(.*)")


@pytest.mark.parametrize("tool", ["states.py", "cli_reference.py", "api_reference.py"])
def test_the_generated_parts_of_the_documentation_are_current(tool: str) -> None:
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 0, found.stderr


def test_every_relative_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
        if not re.match(r"[a-z]+:|#", target) and not (page.parent / target.partition("#")[0]).exists()
    ]

    assert broken == []


def test_the_guide_to_the_proofs_names_the_run_that_is_kept() -> None:
    page = (ROOT / "verify" / "results" / "verify.md").read_text(encoding="utf-8")
    when = re.search(r"^(\d{4}-\d\d-\d\d) .*, commit (\w+)", page, re.MULTILINE)
    assert when is not None

    guide = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")

    assert f"{when[1]}, commit {when[2]}" in guide.replace("\n", " ")


@pytest.mark.parametrize("name", ["table", "peers", "wire", "rest"])
def test_the_page_on_speed_says_of_which_commit_its_figures_are(name: str) -> None:
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8").replace("\n", " ")

    assert "{}, commit {}".format(*_run_of(name)) in page


def test_the_guide_to_the_benchmarks_says_of_which_commit_every_page_is() -> None:
    guide = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\]\(results/\1\.md\) \| (\S+) \| ([^|]+) \|", guide, re.MULTILINE)
    dated = [
        page.stem
        for page in (ROOT / "bench" / "results").glob("*.md")
        if "\n- commit: " in page.read_text(encoding="utf-8")
    ]

    assert sorted(name for name, _, _ in listed) == sorted(dated)
    for name, date, commit in listed:
        assert (date, commit) == _run_of(name)


def _run_of(name: str) -> tuple[str, str]:
    """The date and the commit of a page of figures."""
    page = (ROOT / "bench" / "results" / f"{name}.md").read_text(encoding="utf-8")
    found = re.search(r"^- date: (\S+) .*\n- commit: (.*)$", page, re.MULTILINE)
    assert found is not None
    return found[1], found[2]


def test_the_fields_of_a_lease_are_those_in_its_guide() -> None:
    guide = (ROOT / "docs" / "leases.md").read_text(encoding="utf-8")
    table = guide.partition("| field | meaning |")[2].partition("\n\n")[0]
    rows = [row.partition(" | ")[0] for row in table.splitlines()[2:]]

    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert sorted(named) == sorted(Lease.__struct_fields__)
    assert "`claim_op_id`" in guide
    assert "claim_op_id" in Job.__struct_fields__


def test_a_query_of_the_log_in_sqlite_reads_one_job_as_its_guide_says(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    [query] = re.findall(r"SELECT event_id, event_type, occurred_at FROM job_event_log.*", guide)
    asyncio.run(_made(f"sqlite:///{tmp_path / 'jobs.db'}"))

    log = apsw.Connection(str(tmp_path / "jobs.db"), flags=apsw.SQLITE_OPEN_READONLY)
    plan = [row[3] for row in log.execute(f"EXPLAIN QUERY PLAN {query}")]
    log.close()

    assert "SEARCH segment USING INTEGER PRIMARY KEY (rowid=?)" in plan
    assert not {"SCAN segment", "SCAN job", "SCAN state"} & set(plan)
    assert "read what they ask for, not the whole log" in guide


async def _made(url: str) -> None:
    await (await open_registry(url)).close()


def test_the_guide_to_the_command_line_has_every_kind_of_store() -> None:
    guide = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = guide.partition("| URL | what |")[2].partition("\n\n")[0]

    for scheme in ("sqlite://", "postgresql://", "http://", "https://", "memory://"):
        assert f"`{scheme}" in table


@pytest.mark.slow
def test_the_example_of_a_secret_is_what_is_said(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    parts = blocks(guide.partition("\n## Secrets\n")[2])

    said = play(parts, tmp_path)

    assert not (found := differences(parts, said)), "\n".join(found)


def test_every_command_shown_exists_with_its_options() -> None:
    shown = [(page, call) for page in PAGES for call in _calls(page.read_text(encoding="utf-8"))]

    wrong = [
        f"{page.relative_to(ROOT)}: holdfast {' '.join(words)}: {why}"
        for page, words in shown
        if (why := _misfit(words))
    ]

    assert shown
    assert wrong == []


def _calls(text: str) -> Iterator[list[str]]:
    """The words after each `holdfast` in shell blocks; of a console block, those after a prompt."""
    for language, body in _FENCE.findall(text):
        if language not in ("sh", "bash", "shell", "console"):
            continue
        for line in body.replace("\\\n", " ").splitlines():
            typed = line.strip().removeprefix("$ ")
            if language == "console" and not line.startswith("$ "):
                continue
            if found := _CALL.search(typed):
                yield _words(found[1])


def _words(rest: str) -> list[str]:
    """The words of one call: up to a pipe, a redirection or a comment."""
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in _whole(lexer):
        if set(word) <= set("|;&<>()"):
            break
        words.append(word)
    return words


def _whole(lexer: shlex.shlex) -> Iterator[str]:
    """The words up to a quotation that goes on in the next line: no option stands in there."""
    try:
        yield from lexer
    except ValueError:
        return


def _misfit(words: list[str]) -> str | None:
    """What is wrong with a call: an unknown command, or an option that it does not have."""
    command: click.Command = cli
    context = click.Context(cli, info_name="holdfast")
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "--":
            return None
        elif word.startswith("-"):
            name = word.partition("=")[0]
            known = [p for p in command.get_params(context) if name in (*p.opts, *p.secondary_opts)]
            if not known:
                return f"no option {name}"
            takes = isinstance(known[0], click.Option) and not known[0].is_flag
            skip = takes and "=" not in word and known[0].name != "help"
        elif isinstance(command, click.Group):
            below = command.get_command(context, word)
            if below is None:
                return f"no command {word}"
            command = below
            context = click.Context(below, parent=context, info_name=word, **below.context_settings)
        elif not context.allow_interspersed_args:
            return None  # what follows is not for this command
    return None
