"""The payload of a command job: the process to start. Secrets are named here; their values never are."""

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
RESERVED_ENV_PREFIX = "HOLDFAST_"
"""The prefix of variables that no job may name as secrets: they hold the worker's own credentials."""

ROWS, COLUMNS = 24, 80

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ProcessSpec(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`argv` is run as it is, without a shell. `secrets` are names in the worker's environment.

    `pty`: the process runs on a terminal of its own, of `rows` and `columns`, without input.
    `memory_bytes`: the memory that the process and its children may use together.
    `job_v1`: further fields from a client of job.v1, kept for such clients to read and otherwise unused.
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


def check_process_spec(process: ProcessSpec) -> ProcessSpec:
    """Return the process spec, or raise `Invalid` if no process can be started with it."""
    if not process.argv or not process.argv[0]:
        raise Invalid("There is no command to run.")
    for text in (*process.argv, process.cwd or "", *process.env, *process.env.values()):
        if "\0" in text:
            raise Invalid("A command, its folder and its environment cannot contain a NUL character.")
        try:
            check_bytes(text.encode(), "An argument", ARGUMENT_BYTES_MAX)
        except UnicodeEncodeError:
            raise Invalid("A command must be valid text; it contains bytes that are not UTF-8.") from None
    for name in (*process.env, *process.secrets):
        if not _NAME.match(name):
            raise Invalid(f"{name!r} is not a name for an environment variable.")
    if theirs := sorted(name for name in process.secrets if name.startswith(RESERVED_ENV_PREFIX)):
        raise Invalid(f"{theirs[0]} is the worker's own: no job gets it.")
    if both := set(process.env) & set(process.secrets):
        raise Invalid(f"{sorted(both)[0]} is both a secret and a plain variable: give it once.")
    if not all(1 <= side <= TERMINAL_SIDE_MAX for side in (process.rows, process.columns)):
        raise Invalid(f"A terminal has 1 to {TERMINAL_SIDE_MAX:,} rows and columns.")
    if process.memory_bytes is not None and process.memory_bytes < 1:
        raise Invalid("A limit on memory must be at least one byte.")
    return process


def encode_process_spec(process: ProcessSpec) -> msgspec.Raw:
    """Return the payload of a job that runs this process."""
    return msgspec.Raw(msgspec.json.encode(check_process_spec(process)))


def decode_process_spec(payload: msgspec.Raw) -> ProcessSpec:
    """Return the process spec in a payload, or raise `Invalid` if there is none."""
    try:
        return check_process_spec(msgspec.json.decode(payload, type=ProcessSpec))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The payload is not a command: {error}") from error


class _Params(Struct, frozen=True, kw_only=True):
    """The fields of a job.v1 payload that describe a process."""

    command: str = ""
    args: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    working_directory: str | None = msgspec.field(default=None, name="workingDirectory")


def process_spec_of(spec: Spec) -> ProcessSpec | None:
    """Return the process that a job runs; None for a function, and for a payload that cannot be read."""
    try:
        if spec.kind == COMMAND_KIND:
            return decode_process_spec(spec.payload)
        if spec.kind == JOB_V1_KIND:
            params = msgspec.json.decode(spec.payload, type=_Params)
            argv, cwd = (params.command, *params.args), params.working_directory
            return check_process_spec(ProcessSpec(argv=argv, env=params.environment, cwd=cwd))
    except (Invalid, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None


def exit_failure(code: int, words: str) -> Failure:
    """Return the failure for an exit code other than 0. Some codes show a crash, and count as one."""
    return Failure(message=words, code=f"Exit{code}", exit_code=code, crash=code in CRASH_EXITS)


HOLDFAST_COMMAND_KIND = f"{COMMAND_KIND}/own"
"""The kind under which stores keep commands that need a holdfast worker. No caller can use it, since ids
have no slash."""

_HOLDFAST_FIELDS = (b'"memory_bytes"', b'"secrets"', b'"rows"', b'"columns"', b"\\u")
"""Every payload that asks for more than a plain command contains one of these, however it was encoded."""


def holdfast_worker_reason(spec: Spec) -> str | None:
    """Return why only a holdfast worker can run this command, as a clause; None if any worker can.

    A plain command is one that job.v1 can express: arguments, variables, a folder, a terminal. The registry
    enforces its timeout, lock and retries.
    """
    if spec.kind != COMMAND_KIND:
        return None
    if spec.outputs is not None:
        return "it promises outputs"
    payload = bytes(spec.payload)
    if not any(name in payload for name in _HOLDFAST_FIELDS):
        return None
    try:
        command = decode_process_spec(spec.payload)
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
    """Return the kind under which a claim finds the job: its own, except for commands that need a holdfast
    worker."""
    return spec.kind if holdfast_worker_reason(spec) is None else HOLDFAST_COMMAND_KIND


def claim_kinds(kinds: Sequence[str], *, plain: bool = False) -> tuple[str, ...]:
    """Return the kinds under which jobs of these kinds are found; with `plain`, only commands that any
    worker can run."""
    named = tuple(kind for kind in kinds if kind != HOLDFAST_COMMAND_KIND)
    return named if plain or COMMAND_KIND not in named else (*named, HOLDFAST_COMMAND_KIND)
