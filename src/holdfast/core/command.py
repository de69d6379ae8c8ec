"""The payload of a command job: what to run. Secrets are named here; their values never are."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import check_bytes
from holdfast.core.spec import COMMAND_KIND, JOB_V1_KIND, Spec

ARGUMENT_BYTES_MAX = 128 * 1024
TERMINAL_SIDE_MAX = 65_535
CRASH_EXITS = (137, 139)
WORKERS_OWN = "HOLDFAST_"
"""How the names of variables begin that no job may ask for: who has them may do what the worker may."""

ROWS, COLUMNS = 24, 80

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`argv` is run as it is, without a shell. `secrets` are names in the worker's environment.

    `pty`: it runs on a terminal of its own, of `rows` and `columns`, at which nobody types.
    `memory_bytes`: what it and all it starts may use together.
    `job_v1`: what a client of job.v1 said about it besides, for those clients to read; nothing is done
    with it.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None
    secrets: tuple[str, ...] = ()
    pty: bool = False
    rows: int = ROWS
    columns: int = COLUMNS
    memory_bytes: int | None = None
    job_v1: dict[str, object] = {}


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


class _Params(Struct, frozen=True, kw_only=True):
    """What of a job for workers of job.v1 is a command."""

    command: str = ""
    args: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    working_directory: str | None = msgspec.field(default=None, name="workingDirectory")


def command_of(spec: Spec) -> Command | None:
    """What a job runs, whoever can run it; None for a function, and for what cannot be read."""
    try:
        if spec.kind == COMMAND_KIND:
            return decode_command(spec.payload)
        if spec.kind == JOB_V1_KIND:
            said = msgspec.json.decode(spec.payload, type=_Params)
            argv, cwd = (said.command, *said.args), said.working_directory
            return check_command(Command(argv=argv, env=said.environment, cwd=cwd))
    except (Invalid, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None


def exited(code: int, words: str) -> Failure:
    """An exit that is no success. One that shows a crash counts among the crashes."""
    return Failure(message=words, code=f"Exit{code}", exit_code=code, crash=code in CRASH_EXITS)


OWN_COMMAND_KIND = f"{COMMAND_KIND}/own"
"""The kind under which stores keep commands that need a holdfast worker. No caller can name it: ids have
no slash."""

_OWN = (b'"memory_bytes"', b'"secrets"', b'"rows"', b'"columns"', b"\\u")
"""One of these is in every payload that asks for more than a plain command, however it was written."""


def need(spec: Spec) -> str | None:
    """What of a command only a holdfast worker keeps, as part of a sentence; None if any worker can run it.

    A plain command is one that job.v1 has words for: arguments, variables, a folder, a terminal. Its
    timeout, lock and retries are kept by the registry.
    """
    if spec.kind != COMMAND_KIND:
        return None
    if spec.outputs is not None:
        return "it promises outputs"
    payload = bytes(spec.payload)
    if not any(name in payload for name in _OWN):
        return None
    try:
        command = decode_command(spec.payload)
    except Invalid:
        return "other workers do not understand its payload"
    if command.memory_bytes is not None:
        return "it has a memory limit"
    if command.secrets:
        return "it takes secrets from the worker's environment"
    if command.pty and (command.rows, command.columns) != (ROWS, COLUMNS):
        return "its terminal has a size of its own"
    return None


def claim_kind(spec: Spec) -> str:
    """The kind under which a claim finds the job: its own, but for commands that need a holdfast worker."""
    return spec.kind if need(spec) is None else OWN_COMMAND_KIND


def claim_kinds(kinds: Sequence[str], *, plain: bool = False) -> tuple[str, ...]:
    """The kinds under which the jobs of these kinds are found; with `plain`, only commands that any
    worker can run."""
    named = tuple(kind for kind in kinds if kind != OWN_COMMAND_KIND)
    return named if plain or COMMAND_KIND not in named else (*named, OWN_COMMAND_KIND)
