"""Write the generated parts of docs/cli.md: every command with its options, and the exit codes.

`python tools/cli_reference.py` writes them; with `--check` nothing is written, and a part that is
out of date is an exit with 1.
"""

import inspect
import sys
from collections.abc import Iterator

import click
from states import main, table

from holdfast.cli.exits import Exit
from holdfast.cli.main import SECTIONS, cli

MEANINGS = {
    Exit.DONE: "Done.",
    Exit.NO: "The answer is no: `verify` found differences, `doctor` found a fault, or the job that was"
    " followed or validated did not succeed and has no exit code of its own.",
    Exit.INVALID: "Wrong usage, or a request that can never be accepted.",
    Exit.NOT_FOUND: "There is no such job or store.",
    Exit.CONFLICT: "The job is not in a state that allows this.",
    Exit.EXHAUSTED: "A limit is reached.",
    Exit.DENIED: "Not allowed.",
    Exit.CORRUPT: "What is stored contradicts itself.",
    Exit.UNAVAILABLE: "The store is unavailable, or outputs cannot be seen; try again.",
    Exit.RUN_FAILED: "`run` itself failed, not the command it ran.",
    Exit.INTERRUPTED: (
        "Interrupted with Ctrl-C. A job that was only watched goes on; one under `run` was asked to stop."
    ),
    Exit.NO_READER: "Nobody reads the output any more.",
}


def reference() -> str:
    """Every command, section by section, in the order of --help."""
    root = click.Context(cli, info_name="holdfast")
    parts = []
    for section, entries in SECTIONS.items():
        parts.append(f"### {section}")
        for name in entries:
            command = cli.get_command(root, name)
            assert command is not None  # the table names it
            for context in _contexts(command, root, name):
                parts += list(_describe(context))
    return "\n\n".join(parts)


def _contexts(command: click.Command, parent: click.Context, name: str) -> Iterator[click.Context]:
    """The command, and what is below it."""
    context = click.Context(command, parent=parent, info_name=name)
    yield context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None  # it was just listed
            yield from _contexts(found, context, below)


def _describe(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f"#### `{context.command_path}`"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```"
    yield from _paragraphs(command.help or "")
    options = [p for p in command.get_params(context) if isinstance(p, click.Option)]
    rows = [_row(*record) for p in options if (record := p.get_help_record(context))]
    if shown := [row for row in rows if "--help" not in row[0]]:
        yield table(("option", "meaning"), shown)


def _row(names: str, text: str) -> tuple[str, str]:
    """A bar ends a cell of a table, even inside a code span."""
    meaning = " ".join(text.replace("*", "\\*").split())
    return f"`{names}`".replace("|", "\\|"), meaning.replace("|", "\\|")


def _paragraphs(text: str) -> Iterator[str]:
    """Click's help text: a paragraph after a \\b is kept as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```"
        else:
            yield " ".join(paragraph.split())


def exits() -> str:
    """The exit codes. Every one must have its meaning here."""
    return table(("code", "meaning"), ((f"{code:d}", MEANINGS[code]) for code in Exit))


if __name__ == "__main__":
    sys.exit(main({"cli.md": {"commands": reference(), "exit codes": exits()}}, sys.argv[1:]))
