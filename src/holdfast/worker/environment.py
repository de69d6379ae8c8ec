"""The environment of a command: little is inherited, the rest is asked for by name."""

import fnmatch
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.core.command import Command
from holdfast.core.errors import Invalid
from holdfast.core.outputs import Promise
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
    command: Command,
    passed: Iterable[str] = (),
    traceparent: str | None = None,
) -> dict[str, str]:
    """The worker's variables that every job gets (and those it was told to pass on), its trace, the
    job's own, its secrets, who it is and, on a terminal, which kind. A secret the worker does not have
    is `Invalid`."""
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
    fence = Fence(
        resource=lock or grant.job_id, token=grant.fencing_token, job_id=grant.job_id, lock=lock
    )
    env |= secrets(own, command)
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


def promised(promise: Promise | None, outputs: str | None) -> dict[str, str]:
    """What a command has to know about what it is to leave: of a manifest's tasks the checksum that names
    it, and the output store of this worker, where it is; of plain paths, when it is run again for those
    that are missing, which they are, one a line."""
    if promise is None:
        return {}
    missing = "\n".join(file.path for file in promise.files) if promise.resume_attempt else None
    found = {
        "HOLDFAST_MANIFEST": promise.manifest,
        "HOLDFAST_OUTPUTS": outputs if promise.manifest is not None else None,
        "HOLDFAST_MISSING": missing or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def secrets(own: Mapping[str, str], command: Command) -> dict[str, str]:
    """The values of the secrets the command names, from the worker's own environment."""
    if missing := [name for name in command.secrets if name not in own]:
        raise Invalid(
            f"The job needs the secret {missing[0]}, which this worker does not have in its environment."
        )
    return {name: own[name] for name in command.secrets}


def own_keys(own: Mapping[str, str]) -> list[str]:
    """The worker's own key, which no output may show."""
    keys = [own[name] for name in ("HOLDFAST_KEY",) if own.get(name)]
    if path := own.get("HOLDFAST_KEY_FILE"):
        with suppress(OSError, UnicodeDecodeError):
            keys.append(Path(path).read_text(encoding="ascii").strip())
    return [key for key in keys if key]
