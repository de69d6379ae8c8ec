"""The spec: the request for a job, as submitted. It never changes after the job is created."""

import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    JSON_DEPTH_MAX,
    LABEL_CHARACTERS_MAX,
    LABELS_MAX,
    LEASE_DEFAULT,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    TTL_MAX,
    check_bytes,
    check_delay,
    check_id,
    check_lease,
    check_text,
    clip,
)
from holdfast.core.outputs import OutputPromise, check_promise
from holdfast.core.retry import FUNCTION_RETRY, Retry

COMMAND_KIND = "command"
JOB_V1_KIND = "job.v1"
"""The kind of jobs that only workers of job.v1 can run: in a container, from a clone, without a command."""

PRIORITY_DEFAULT = 5
RETRY_DEFAULT = Retry()

Json: TypeAlias = object
"""Any value that JSON can express."""


class Spec(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One request for work. `payload` is JSON that only the executor of `kind` understands.

    `outputs` is what the job promises, and `promised_outputs` how many outputs these are; with the number
    alone, the caller's own validator finds them."""

    kind: str = COMMAND_KIND
    """What runs it: the name of a function, or `command`."""
    queue: str = "default"
    """The queue that workers claim it from."""
    payload: msgspec.Raw = msgspec.Raw(b"null")
    """The arguments."""
    name: str | None = None
    """A name for people, who find the job by it."""
    priority: int = PRIORITY_DEFAULT
    """From 0, which comes first, to 9."""
    region: str | None = None
    """Only workers of this region claim it."""
    lock: str | None = None
    """Jobs with the same lock run one after the other."""
    executor: str | None = None
    """Only claims on behalf of this executor get it."""
    lease: timedelta = LEASE_DEFAULT
    """How long its worker may be silent."""
    timeout: timedelta | None = None
    """How long one attempt may take."""
    delay: timedelta | None = None
    """How long after its creation it may begin."""
    run_at: datetime | None = None
    """When it may begin."""
    ttl: timedelta | None = None
    """How long after its creation it is given up."""
    retry: Retry = RETRY_DEFAULT
    """When a failed attempt is tried again."""
    labels: dict[str, str] = {}
    """Names and values to find it by."""
    promised_outputs: int = 0
    """How many outputs it has to leave behind."""
    outputs: OutputPromise | None = None
    """Which these are."""
    replayed_from: str | None = None
    """The job that it repeats."""
    resumed_from: str | None = None
    """The job whose missing outputs it makes."""


def check_spec(spec: Spec, checked: Spec | None = None) -> Spec:
    """Return `spec`, or raise `Invalid` with the first thing that is wrong with it.

    Where it agrees with a spec that was `checked` before, as those of one call do, it is not checked again.
    """
    if checked is None or not _same_terms(spec, checked):
        return _check_payload(_check_terms(spec))
    return spec if spec.payload == checked.payload else _check_payload(spec)


def _same_terms(spec: Spec, checked: Spec) -> bool:
    """Whether the spec has all but its payload from one that was checked. What may be equal and yet not as
    good, such as True for 1 or a time in another zone, is looked at more closely."""
    return (
        spec.run_at is checked.run_at
        and spec.outputs is checked.outputs is None
        and type(spec.priority) is type(spec.promised_outputs) is int
        and replace(checked, payload=spec.payload) == spec
    )


def _check_terms(spec: Spec) -> Spec:
    """Check everything but the payload."""
    check_id(spec.kind, "kind")
    check_id(spec.queue, "queue")
    if spec.region is not None:
        check_id(spec.region, "region")
    if spec.lock is not None:
        check_id(spec.lock, "lock")
    for name in _OPTIONAL_IDS:
        if (value := getattr(spec, name)) is not None:
            check_id(value, name)
    check_lease(spec.lease)
    if spec.retry is not RETRY_DEFAULT and spec.retry is not FUNCTION_RETRY:
        spec.retry.check()
    if spec.delay or spec.run_at or spec.timeout is not None or spec.ttl is not None:
        _check_times(spec)
    if not 0 <= spec.priority <= PRIORITY_MAX:
        raise Invalid(f"priority is from 0 (first) to {PRIORITY_MAX} (last), not {spec.priority}.")
    if spec.outputs is not None:
        spec = _with_promise(spec, spec.outputs)
    if spec.promised_outputs < 0:
        raise Invalid("A job cannot promise a negative number of outputs.")
    if type(spec.priority) is not int or type(spec.promised_outputs) is not int:
        raise Invalid("priority and promised_outputs are whole numbers.")
    if spec.labels:
        _check_labels(spec.labels)
    if spec.name is not None:
        check_text(spec.name, "A name", LABEL_CHARACTERS_MAX)
    # A repeated request is recognised by an equal spec, so instants and payloads are normalised.
    if spec.run_at is not None and spec.run_at.tzinfo is not UTC:
        spec = replace(spec, run_at=_in_utc(spec.run_at))
    return spec


def _check_payload(spec: Spec) -> Spec:
    payload = bytes(spec.payload)
    check_json(payload, "payload", PAYLOAD_BYTES_MAX)
    if payload[0] in _SPACES or payload[-1] in _SPACES:
        return replace(spec, payload=msgspec.Raw(payload.strip()))
    return spec


_OPTIONAL_IDS = ("executor", "replayed_from", "resumed_from")


def _with_promise(spec: Spec, outputs: OutputPromise) -> Spec:
    promise = check_promise(check_struct(outputs), plain=spec.kind == COMMAND_KIND)
    if spec.promised_outputs not in (0, promise.count):
        raise Invalid(f"promised_outputs is {promise.count} here, or left out.")
    return replace(spec, outputs=promise, promised_outputs=promise.count)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise Invalid(f"The time to run at is out of range: {moment}.") from error


_SPACES = b" \t\r\n"


def _check_labels(labels: dict[str, str]) -> None:
    if len(labels) > LABELS_MAX or any(len(k) + len(v) > LABEL_CHARACTERS_MAX for k, v in labels.items()):
        raise Invalid(f"At most {LABELS_MAX} labels of {LABEL_CHARACTERS_MAX} characters are taken.")
    for text in (*labels, *labels.values()):
        check_text(text, "A label", LABEL_CHARACTERS_MAX)


def _check_times(spec: Spec) -> None:
    if spec.delay is not None and spec.run_at is not None:
        raise Invalid("Give a delay or a time to run at, not both.")
    if spec.delay is not None:
        check_delay(spec.delay)
    if spec.run_at is not None and spec.run_at.tzinfo is None:
        raise Invalid("The time to run at needs a time zone, such as 2030-01-01T09:00:00+01:00.")
    for value, what in ((spec.timeout, "timeout"), (spec.ttl, "ttl")):
        if value is not None and not timedelta() < value <= TTL_MAX:
            raise Invalid(f"{what} is longer than nothing and at most {TTL_MAX.days} days, not {value}.")


def check_json(document: bytes, what: str, most: int) -> None:
    """Raise `Invalid` unless `document` is JSON within the limits of size and depth."""
    check_bytes(document, what, most)
    if document.count(b"[") + document.count(b"{") > JSON_DEPTH_MAX:
        depth = _depth(document)
        if depth > JSON_DEPTH_MAX:
            raise Invalid(f"{what} is nested {depth} deep; at most {JSON_DEPTH_MAX} is taken.")
    try:
        msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{what} is not JSON: {error}") from error


# Possessive: it never backtracks.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


def _depth(document: bytes) -> int:
    depth = deepest = 0
    for byte in _STRING.sub(b"", document):
        depth += (byte in b"[{") - (byte in b"]}")
        deepest = max(deepest, depth)
    return deepest


def check_value(value: Json, what: str, most: int) -> Json:
    """Return the value as decoded from JSON, or raise `Invalid` unless it is JSON within the limits."""
    try:
        document = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Invalid(f"{what} cannot be written as JSON: {error}") from error
    check_json(document, what, most)
    return msgspec.json.decode(document)


S = TypeVar("S", bound=Struct)


def check_struct(value: S) -> S:
    """Return the value with its texts clipped, or raise `Invalid` if a field has not its declared type:
    what cannot be read back must never be written."""
    try:
        plain = msgspec.to_builtins(value)
        for name, text in plain.items():
            if isinstance(text, str):
                plain[name] = clip(text)
        return msgspec.convert(plain, type(value))
    except (TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise Invalid(f"{type(value).__name__} is not valid: {error}") from error
