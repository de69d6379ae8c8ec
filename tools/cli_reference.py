"""Write the generated parts of docs/cli.md: every command with its options, and the exit codes.

`python tools/cli_reference.py` writes them; with `--check` nothing is written, and a part that is
out of date makes it exit with 1.
"""

import inspect
import sys
from collections.abc import Iterator

import click
from states import main, table

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.main import SECTIONS, cli

MEANINGS = {
    ExitCode.DONE: "Done.",
    ExitCode.NO: "The answer is no: `verify` or `rebuild --check` found differences, `doctor` found a fault,"
    " or the job that was followed or validated did not succeed and has no exit code of its own.",
    ExitCode.INVALID: "Wrong usage, or a request that can never be accepted.",
    ExitCode.NOT_FOUND: "There is no such job or store.",
    ExitCode.CONFLICT: "The job is not in a state that allows this.",
    ExitCode.EXHAUSTED: "A limit is reached.",
    ExitCode.DENIED: "Not allowed.",
    ExitCode.CORRUPT: "What is stored contradicts itself.",
    ExitCode.UNAVAILABLE: "The store is unavailable, or outputs cannot be seen; try again.",
    ExitCode.RUN_FAILED: "`run` itself failed, not the command it ran.",
    ExitCode.INTERRUPTED: (
        "Interrupted with Ctrl-C. A job that was only watched goes on; one under `run` was asked to stop."
    ),
    ExitCode.NO_READER: "The reader of the output is gone.",
}


def reference() -> str:
    """Return every command, section by section, in the order of --help."""
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
    """Yield the context of the command, and of every command below it."""
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
    """Return one row. A bar would end a cell, even inside a code span, so it is escaped."""
    meaning = " ".join(text.replace("*", "\\*").split())
    return f"`{names}`".replace("|", "\\|"), meaning.replace("|", "\\|")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; one after a \\b is kept as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```"
        else:
            yield " ".join(paragraph.split())


def exit_codes() -> str:
    """Return the table of exit codes. Every code must have its meaning here."""
    return table(("code", "meaning"), ((f"{code:d}", MEANINGS[code]) for code in ExitCode))


if __name__ == "__main__":
    sys.exit(main({"cli.md": {"commands": reference(), "exit codes": exit_codes()}}, sys.argv[1:]))
