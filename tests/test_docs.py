"""The documentation: what is generated is current, what is linked exists, what is typed runs."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CALL = re.compile(r"(?:^|[|;&(]\s*)(?:\w+=\S*\s+)*holdfast\b(.*)")


@pytest.mark.parametrize("tool", ["states.py", "cli_reference.py"])
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
        if not re.match(r"[a-z]+:|#", target)
        and not (page.parent / target.partition("#")[0]).exists()
    ]

    assert broken == []


def test_the_readme_names_the_run_of_the_proofs_that_is_kept() -> None:
    page = (ROOT / "verify" / "results" / "verify.md").read_text(encoding="utf-8")
    when = re.search(r"^(\d{4}-\d\d-\d\d) .*, commit (\w+)", page, re.MULTILINE)
    assert when is not None

    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert f"{when[1]}, commit {when[2]}" in readme.replace("\n", " ")


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
            command, context = below, click.Context(below, parent=context, info_name=word)
    return None
