"""The command `holdfast`. Only the command in use is imported, so that --help comes at once."""

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options import config_option, store_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where each command lives, and its line in --help: reading this table imports none of them.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run work": {
        "demo": ("demo:demo", "Watch workers, a crash and its recovery, with proof at the end."),
        "run": ("run:run", "Submit a command, execute it here and follow it to its end."),
        "submit": ("submit:submit", "Queue a command; prints the id of the job."),
        "enqueue": ("enqueue:enqueue", "Queue a call of a function, such as shop:resize."),
        "worker": ("worker:worker", "Execute jobs until stopped."),
        "serve": ("serve:serve", "Serve the store over HTTP, to any language."),
    },
    "See what happened": {
        "status": ("status:status", "Show one job: state, owner, budgets, outcome."),
        "why": ("why:why", "Explain why a job is in its state and what happens next."),
        "list": ("list:list_jobs", "List jobs."),
        "logs": ("logs:logs", "Print what a job wrote; -f follows it to its end."),
        "events": ("events:events", "Print the event log of a job, or of all."),
        "outputs": (
            "outputs:outputs",
            "List the outputs that a job promised, and which are there.",
        ),
        "workers": ("workers:workers", "List the workers, what they serve and how busy they are."),
        "queues": ("queues:queues", "List the queues: what waits, since when, and who serves them."),
        "verify": ("verify:verify", "Derive every job from its log again, and compare."),
    },
    "Step in": {
        "cancel": ("cancel:cancel", "Ask a job to stop, or end it now with --hard."),
        "replay": ("replay:replay", "Run a job that did not succeed again, as a new job."),
        "resume": ("resume:resume", "Make the missing outputs of a job, in a new job."),
        "validate": ("validate:validate", "Validate the outputs of a job now."),
        "dead-letters": ("dead_letters:dead_letters", "List, show and replay dead letters."),
    },
    "Maintain the store": {
        "doctor": ("doctor:doctor", "Report what the store guarantees, and what it does not."),
        "keys": ("keys:keys", "Create, list and revoke API keys for the clients of a server."),
        "prune": ("prune:prune", "Remove old ended jobs and old output."),
        "backup": ("backup:backup", "Copy the store to a file while it is in use."),
        "rebuild": ("rebuild:rebuild", "Make every record again from the log."),
        "restore": ("backup:restore", "Create a store from a backup; old owners are fenced."),
    },
    "This program": {
        "config": ("config:config", "Show every setting, and where its value comes from."),
        "completion": ("completion:completion", "Print the completion script for your shell."),
        "version": ("version:version", "Print the version."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

EPILOG = """\
\b
The store is chosen by --store, else by HOLDFAST_STORE, else by a file
holdfast.toml (see: holdfast config), else it is sqlite:///holdfast.db:
the file holdfast.db in the current folder.

\b
A JOB is named by its id, the short id that tables show, any unique
beginning of its id, its name, or @last, the newest job.

\b
Exit codes:
    0  done
    1  the answer is no: verify or rebuild --check found differences, doctor
       a fault, or the job that was followed or validated did not succeed
       and has no exit code
    N  submit --wait, logs -f, status --watch and run exit with the exit
       code of the command they follow
    2  wrong usage, or a request that can never be accepted
    3  there is no such job or store
    4  the job is not in a state that allows this
    5  a limit is reached
    6  not allowed
   70  what is stored contradicts itself
   75  the store is unavailable, or outputs cannot be seen; try again
  125  run itself failed, not the command it ran
  130  interrupted (Ctrl-C): a job that was only watched goes on, one
       under run was asked to stop
  141  the reader of the output is gone
"""


class CommandGroup(click.Group):
    """A group that knows its commands by name and imports one only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(f"holdfast.cli.{module}"), attribute)
        assert isinstance(command, click.Command)  # the table names nothing else
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(name, possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=COMMANDS[name][1]) for name in names] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in entries.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            _exit_quietly()
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)
        except Exception as error:
            from holdfast.cli.session import explain_error

            ctx.exit(explain_error(error))


def _exit_quietly() -> NoReturn:
    """Exit after the reader of stdout has gone: it points to nothing then, so that Python ends silently."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(ExitCode.NO_READER)


def _print_version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from holdfast.cli.version import version_text

        click.echo(version_text())
        ctx.exit()


@click.group(cls=CommandGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@store_option
@config_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def cli() -> None:
    """Jobs with one owner at a time, and a record of what really happened.

    \b
    Try it:
      holdfast submit -- echo hello     queue a command, get a job id
      holdfast worker                   execute what is queued
      holdfast status JOB               see what came of it
    """


def main() -> None:
    """The entry point of the script `holdfast`."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot show is replaced, never a reason to fail.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        cli.main(prog_name="holdfast")
    except SystemExit:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _exit_quietly()
        raise
