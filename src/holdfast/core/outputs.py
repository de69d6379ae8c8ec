"""Outputs: what a job promises to produce, and the progress and result of their validation."""

import re
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ENTRIES_MAX,
    ID_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    NUMBER_MAX,
    OUTPUT_NAME_CHARACTERS_MAX,
    OUTPUTS_NAMED_BYTES_MAX,
    OUTPUTS_NAMED_MAX,
    check_text,
)

VALIDATION_TIMEOUT = timedelta(seconds=60)
"""How long a silent validator keeps others from validating the same job."""

OWNER_GRACE = timedelta(seconds=15)
"""How long the worker that ran a job has to validate its outputs before others may."""

FIRST_RETRY_WAITS = (timedelta(seconds=10), timedelta(seconds=20))
"""The waits between the first three tries, when the outputs could not be seen."""

RETRY_WAIT_MIN, RETRY_WAIT_MAX = timedelta(minutes=1), timedelta(minutes=15)
RECHECK_WAIT_MIN, RECHECK_WAIT_MAX = timedelta(minutes=5), timedelta(days=1)
"""The waits between later tries, and between validations of a partial success: they grow with its age."""

VALIDATION_TRIES_MAX = 24
"""How often the validation of a job that ended without success is tried: for more than four hours."""

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


class File(Struct, frozen=True, omit_defaults=True):
    """A plain path that a command writes itself, or a pattern (`run-7/*.parquet`) with how many files
    have to match. A field that is None is not checked."""

    path: str
    """The path or pattern, relative to where the command runs."""
    count: int | None = None
    """How many files have to match."""
    size: int | None = None
    """The size of the file in bytes."""
    sha256: str | None = None
    """The checksum of the file."""


class OutputPromise(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outputs a job has to produce before it counts as succeeded.

    `files` are plain paths, `names` outputs that the handler writes through its context, and `manifest`
    the checksum of a list of `entries` outputs whose paths follow from their inputs. The last two are in
    the output store of this id; `place` is its URL as the submitter saw it. In a job that resumes another,
    `resume_attempt` is the number of the resume, and `original_total` what was promised at first.
    """

    files: tuple[File, ...] = ()
    names: tuple[str, ...] = ()
    manifest: str | None = None
    entries: int = 0
    store: str | None = None
    place: str | None = None
    resume_attempt: int = 0
    original_total: int = 0

    @property
    def count(self) -> int:
        return len(self.files) + len(self.names) + self.entries

    @property
    def in_store(self) -> bool:
        """Whether an output store holds what is promised, all of it or a part."""
        return bool(self.names or self.manifest)


class Output(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One promised output as a validation saw it: the evidence. `missing` says why it does not count; None
    means that it exists. `reused` marks an output that this job found and did not make."""

    name: str
    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    missing: str | None = None
    reused: bool = False


class ValidationResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a validation found. `names` are the first few missing outputs; the evidence for all of them is
    in the event of the verdict, or under `report` in the output store."""

    verified: int = 0
    missing: int = 0
    reused: int = 0
    names: tuple[str, ...] = ()
    report: str | None = None


class ValidationProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a validation, reported by its validator. `where` is the machine and folder the job
    ran in; `by` validates until `until`; `reason` is why the outputs could not be seen so far."""

    where: str | None = None
    by: str | None = None
    until: datetime | None = None
    done: int = 0
    total: int = 0
    tries: int = 0
    reason: str | None = None
    next_at: datetime | None = None


def check_promise(promise: OutputPromise, *, plain: bool) -> OutputPromise:
    """Return the promise, or raise `Invalid`. Plain paths are for commands (`plain`) alone."""
    if not promise.count:
        raise Invalid("A promise names at least one output.")
    if len(promise.files) + len(promise.names) > OUTPUTS_NAMED_MAX:
        raise Invalid(f"At most {OUTPUTS_NAMED_MAX} outputs are named one by one; give a manifest for more.")
    if promise.files and not plain:
        raise Invalid("Plain paths are for commands; a function writes ctx.output(name).")
    for file in promise.files:
        _check_file(file)
    for name in promise.names:
        check_output_name(name)
    named = (*promise.names, *(file.path for file in promise.files))
    if len(set(named)) < len(named):
        raise Invalid("An output is promised twice; name each once.")
    if sum(len(name.encode()) for name in named) > OUTPUTS_NAMED_BYTES_MAX:
        raise Invalid(
            f"The names of all outputs have more than {OUTPUTS_NAMED_BYTES_MAX:,} bytes; promise a"
            " pattern, or the folder they are in."
        )
    _check_manifest(promise)
    if promise.in_store and promise.store is None:
        raise Invalid("The promise does not say in which output store its outputs will be.")
    for text, most in ((promise.store, ID_CHARACTERS_MAX), (promise.place, MESSAGE_CHARACTERS_MAX)):
        check_text(text or "", "The output store", most)
    return promise


def _check_file(file: File) -> None:
    if not check_text(file.path, "The path of an output", OUTPUT_NAME_CHARACTERS_MAX).strip():
        raise Invalid("The path of an output is empty.")
    if not file.path.isprintable():
        raise Invalid(f"The path of an output has no control characters: {file.path!r:.80}.")
    if file.count is not None and not 1 <= file.count <= ENTRIES_MAX:
        raise Invalid(f"{file.path}: a count is from 1 to {ENTRIES_MAX:,}, not {file.count}.")
    if file.size is not None and not 0 <= file.size <= NUMBER_MAX:
        raise Invalid(f"{file.path}: a size is a number of bytes, not {file.size}.")
    if file.sha256 is not None and not _SHA256.match(file.sha256):
        raise Invalid(f"{file.path}: sha256 is 64 hexadecimal digits.")


def _check_manifest(promise: OutputPromise) -> None:
    if (promise.manifest is None) is not (promise.entries == 0):
        raise Invalid("A manifest and how many entries it has are given together.")
    if promise.manifest is not None and not _SHA256.match(promise.manifest):
        raise Invalid("A manifest is named by its sha256, 64 hexadecimal digits.")
    if not 0 <= promise.entries <= ENTRIES_MAX:
        raise Invalid(f"A manifest has from 1 to {ENTRIES_MAX:,} entries, not {promise.entries}.")


def check_output_name(name: str) -> str:
    """Return the name of an output that a handler writes, or raise `Invalid`."""
    check_text(name, "The name of an output", ID_CHARACTERS_MAX)
    if not _NAME.match(name):
        raise Invalid(f"An output cannot be called {name!r}: use letters, digits and . _ -")
    return name


def check_validation_result(found: ValidationResult, promised: int) -> ValidationResult:
    """Return the result, or raise `Invalid` unless it accounts for every promised output."""
    if min(found.verified, found.missing, found.reused) < 0 or found.reused > found.verified:
        raise Invalid("What was found is counted from 0, and what was reused is part of it.")
    if found.verified + found.missing != promised:
        raise Invalid(
            f"{found.verified} verified and {found.missing} missing outputs are not the {promised}"
            " that were promised."
        )
    return found


def to_json_value(value: object) -> object:
    """Return the value as an event stores it: decoded from JSON, with lists in place of tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def is_being_validated(check: ValidationProgress, now: datetime) -> bool:
    """Return whether a validator is at work now. An `until` further off than any validator gets comes from
    a clock that has been corrected since, and does not count."""
    return check.until is not None and now < check.until <= now + VALIDATION_TIMEOUT


def validation_due_at(job_updated_at: datetime, check: ValidationProgress | None, now: datetime) -> datetime:
    """Return when the next validation may begin, if none is running; at once, if a clock was far ahead."""
    if check is None:
        return job_updated_at + OWNER_GRACE
    if check.next_at is None or check.next_at > now + RECHECK_WAIT_MAX:
        return now
    return check.next_at


def retry_wait(tries: int, age: timedelta) -> timedelta:
    """Return the wait after `tries` tries that could not see the outputs of a job that ended `age` ago."""
    if tries <= len(FIRST_RETRY_WAITS):
        return FIRST_RETRY_WAITS[tries - 1]
    return min(max(age, RETRY_WAIT_MIN), RETRY_WAIT_MAX)


def recheck_wait(age: timedelta) -> timedelta:
    """Return the wait before a partial success of this age is validated again."""
    return min(max(age, RECHECK_WAIT_MIN), RECHECK_WAIT_MAX)
