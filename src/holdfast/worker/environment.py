"""The environment of a command: it inherits a few variables, others are passed by name."""

import fnmatch
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.core.errors import Invalid
from holdfast.core.outputs import OutputPromise
from holdfast.core.process_spec import ProcessSpec
from holdfast.fencing.fence import Fence
from holdfast.ports import Grant

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
)
TERMINAL_TYPE = "xterm-256color"


def environment(
    own: Mapping[str, str],
    grant: Grant,
    command: ProcessSpec,
    passed: Iterable[str] = (),
    traceparent: str | None = None,
) -> dict[str, str]:
    """Return the worker's variables that every job gets, those it is told to pass on, the trace, the job's
    own variables, its secrets, its identity and, on a terminal, `TERM`. Raise `Invalid` for a secret that
    the worker does not have."""
    patterns = (*INHERITED, *passed)
    env = {
        name: value
        for name, value in own.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if traceparent is not None:
        env["TRACEPARENT"] = traceparent
    env |= command.env
    lock = grant.job.spec.lock
    fence = Fence(resource=lock or grant.job_id, token=grant.fencing_token, job_id=grant.job_id, lock=lock)
    env |= secret_values(own, command)
    env |= {
        "HOLDFAST_JOB_ID": grant.job_id,
        "HOLDFAST_ATTEMPT": str(grant.attempt),
        "HOLDFAST_FENCING_TOKEN": str(grant.fencing_token),
        "HOLDFAST_FENCE": fence.header,
        "HOLDFAST_QUEUE": grant.job.spec.queue,
    }
    if command.pty:
        env.setdefault("TERM", TERMINAL_TYPE)
    return env


def output_variables(promise: OutputPromise | None, outputs: str | None) -> dict[str, str]:
    """Return the variables about the outputs that a command has promised: for a manifest its checksum and
    the URL of the output store; for plain paths, when it is resumed, those that are missing, one a line."""
    if promise is None:
        return {}
    missing = "\n".join(file.path for file in promise.files) if promise.resume_attempt else None
    found = {
        "HOLDFAST_MANIFEST": promise.manifest,
        "HOLDFAST_OUTPUTS": outputs if promise.manifest is not None else None,
        "HOLDFAST_MISSING": missing or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def secret_values(own: Mapping[str, str], command: ProcessSpec) -> dict[str, str]:
    """Return the values of the secrets that the command names, from the worker's own environment."""
    if missing := [name for name in command.secrets if name not in own]:
        raise Invalid(
            f"The job needs the secret {missing[0]}, which this worker does not have in its environment."
        )
    return {name: own[name] for name in command.secrets}


def own_keys(own: Mapping[str, str]) -> list[str]:
    """Return the worker's own API keys, which no output may show."""
    keys = [own[name] for name in ("HOLDFAST_KEY",) if own.get(name)]
    if path := own.get("HOLDFAST_KEY_FILE"):
        with suppress(OSError, UnicodeDecodeError):
            keys.append(Path(path).read_text(encoding="ascii").strip())
    return [key for key in keys if key]
