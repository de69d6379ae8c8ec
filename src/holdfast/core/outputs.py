"""Outputs: what a job promises to leave behind, what was found of it, and who looks."""

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

LOOK = timedelta(seconds=60)
"""How long a validator that says nothing keeps the others away."""

GRACE = timedelta(seconds=15)
"""How long the outputs of a job that has just ended are left to whoever ran it."""

WAITS = (timedelta(seconds=10), timedelta(seconds=20))
"""Between the first three tries, when the outputs could not be seen."""

AGAIN_MIN, AGAIN_MAX = timedelta(minutes=1), timedelta(minutes=15)
LATER_MIN, LATER_MAX = timedelta(minutes=5), timedelta(days=1)
"""Between later tries, and between the checks of a partial success: the older, the rarer."""

TRIES_MAX = 24
"""How often it is tried to see the outputs of a job that ended without success: for more than four hours."""

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


class File(Struct, frozen=True, omit_defaults=True):
    """A plain path that a command writes itself, or a pattern (`run-7/*.parquet`) with how many files
    have to match. What is not said is not looked at."""

    path: str
    count: int | None = None
    size: int | None = None
    sha256: str | None = None


class Promise(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outputs a job has to leave behind before it counts as succeeded.

    `files` are plain paths, `names` outputs that the handler writes through its context, and `manifest`
    the checksum of a list of `entries` outputs whose paths follow from their inputs. The last two are in
    the output store of this id; `place` is where whoever asked for the job saw it. In a job that resumes
    another, `resume_attempt` says for which time, and `original_total` what was promised at first.
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


class Output(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One promised output as somebody saw it: the evidence. Without `missing`, which says why it does not
    count, it is there. `reused` is one that this job found and did not make."""

    name: str
    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    missing: str | None = None
    reused: bool = False


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a validation found. `names` are the first few of the missing ones; the evidence for all of
    them is in the event of the verdict, or under `report` in the output store."""

    verified: int = 0
    missing: int = 0
    reused: int = 0
    names: tuple[str, ...] = ()
    report: str | None = None


class Check(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a validation stands: a sign of life. `where` is the machine and folder the job ran in; `by`
    looks until `until`; `reason` is why the outputs could not be seen so far."""

    where: str | None = None
    by: str | None = None
    until: datetime | None = None
    done: int = 0
    total: int = 0
    tries: int = 0
    reason: str | None = None
    next_at: datetime | None = None


def check_promise(promise: Promise, *, plain: bool) -> Promise:
    """Return the promise, or raise `Invalid`. Plain paths are for commands (`plain`) alone."""
    if not promise.count:
        raise Invalid("A promise names at least one output.")
    if len(promise.files) + len(promise.names) > OUTPUTS_NAMED_MAX:
        raise Invalid(
            f"At most {OUTPUTS_NAMED_MAX} outputs are named one by one; give a manifest for more."
        )
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
    if (promise.names or promise.manifest) and promise.store is None:
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


def _check_manifest(promise: Promise) -> None:
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


def check_found(found: Found, promised: int) -> Found:
    """Return what was found, or raise `Invalid` unless it accounts for every promised output."""
    if min(found.verified, found.missing, found.reused) < 0 or found.reused > found.verified:
        raise Invalid("What was found is counted from 0, and what was reused is part of it.")
    if found.verified + found.missing != promised:
        raise Invalid(
            f"{found.verified} verified and {found.missing} missing outputs are not the {promised}"
            " that were promised."
        )
    return found


def told(value: object) -> object:
    """The value as an event keeps it: what JSON gives back, with lists where there were tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def looks(check: Check, now: datetime) -> bool:
    """Whether somebody looks now. A time further off than anybody is given was told by a clock that has
    been corrected since, and does not count."""
    return check.until is not None and now < check.until <= now + LOOK


def due_at(job_updated_at: datetime, check: Check | None, now: datetime) -> datetime:
    """From when on the next one may look, if nobody does; at once, if a clock was far ahead."""
    if check is None:
        return job_updated_at + GRACE
    if check.next_at is None or check.next_at > now + LATER_MAX:
        return now
    return check.next_at


def again(tries: int, age: timedelta) -> timedelta:
    """How long to wait after so many tries that saw nothing, the job being done for `age`."""
    if tries <= len(WAITS):
        return WAITS[tries - 1]
    return min(max(age, AGAIN_MIN), AGAIN_MAX)


def later(age: timedelta) -> timedelta:
    """How long to wait before a partial success of this age is looked at again."""
    return min(max(age, LATER_MIN), LATER_MAX)
