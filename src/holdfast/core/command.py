"""The payload of a command job: what to run. Secrets are named here; their values never are."""

import re

import msgspec
from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import check_bytes

ARGUMENT_BYTES_MAX = 128 * 1024
TERMINAL_SIDE_MAX = 65_535
CRASH_EXITS = (137, 139)
WORKERS_OWN = "HOLDFAST_"
"""How the names of variables begin that no job may ask for: who has them may do what the worker may."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`argv` is run as it is, without a shell. `secrets` are names in the worker's environment.

    `pty`: it runs on a terminal of its own, of `rows` and `columns`, at which nobody types.
    `memory_bytes`: what it and all it starts may use together.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None
    secrets: tuple[str, ...] = ()
    pty: bool = False
    rows: int = 24
    columns: int = 80
    memory_bytes: int | None = None


def check_command(command: Command) -> Command:
    """Return the command, or raise `Invalid`: nothing that a process could not be started with."""
    if not command.argv or not command.argv[0]:
        raise Invalid("There is no command to run.")
    for text in (*command.argv, command.cwd or "", *command.env, *command.env.values()):
        if "\0" in text:
            raise Invalid(
                "A command, its folder and its environment cannot contain a NUL character."
            )
        try:
            check_bytes(text.encode(), "An argument", ARGUMENT_BYTES_MAX)
        except UnicodeEncodeError:
            raise Invalid(
                "A command must be valid text; it contains bytes that are not UTF-8."
            ) from None
    for name in (*command.env, *command.secrets):
        if not _NAME.match(name):
            raise Invalid(f"{name!r} is not a name for an environment variable.")
    if theirs := sorted(name for name in command.secrets if name.startswith(WORKERS_OWN)):
        raise Invalid(f"{theirs[0]} is the worker's own: no job gets it.")
    if both := set(command.env) & set(command.secrets):
        raise Invalid(f"{sorted(both)[0]} is both a secret and a plain variable: give it once.")
    if not all(1 <= side <= TERMINAL_SIDE_MAX for side in (command.rows, command.columns)):
        raise Invalid(f"A terminal has 1 to {TERMINAL_SIDE_MAX:,} rows and columns.")
    if command.memory_bytes is not None and command.memory_bytes < 1:
        raise Invalid("A limit on memory must be at least one byte.")
    return command


def encode_command(command: Command) -> msgspec.Raw:
    """The payload of a job that runs this command."""
    return msgspec.Raw(msgspec.json.encode(check_command(command)))


def decode_command(payload: msgspec.Raw) -> Command:
    """The command in a payload, or `Invalid` when it is none."""
    try:
        return check_command(msgspec.json.decode(payload, type=Command))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The payload is not a command: {error}") from error


def exited(code: int, words: str) -> Failure:
    """An exit that is no success. One that shows a crash counts among the crashes."""
    return Failure(message=words, code=f"Exit{code}", exit_code=code, crash=code in CRASH_EXITS)
