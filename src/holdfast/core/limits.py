"""Every limit, named with its unit. What exceeds a limit is refused before it is decoded or stored."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TypeVar

from holdfast.core.errors import Invalid

T = TypeVar("T")

ID_CHARACTERS_MAX = 128
QUEUE_CHARACTERS_MAX = 128
PAYLOAD_BYTES_MAX = 256 * 1024
RESULT_BYTES_MAX = 256 * 1024
CHECKPOINT_BYTES_MAX = 256 * 1024
ATTRIBUTES_BYTES_MAX = 64 * 1024
MESSAGE_CHARACTERS_MAX = 4096
JSON_DEPTH_MAX = 64
LABELS_MAX = 64
LABEL_CHARACTERS_MAX = 256

BATCH_ITEMS_MAX = 1_000
BATCH_BYTES_MAX = 16 * 1024 * 1024
PAGE_ITEMS_MAX = 1_000
FOLLOW_UPS_MAX = 100
PRIORITY_MAX = 9
ATTEMPTS_MAX = 100
FACTOR_MAX = 1_000
NUMBER_MAX = 2**63 - 1

WORK_SECONDS_MAX = 1_000_000_000.0
"""What an owner may say that its work took: more is taken as nothing."""

LEASE_MIN = timedelta(seconds=1)
LEASE_MAX = timedelta(hours=24)
LEASE_DEFAULT = timedelta(seconds=60)
DELAY_MAX = timedelta(days=366)
TTL_MAX = timedelta(days=3660)
CLOCK_AHEAD_MAX = timedelta(hours=24)

NOT_UNDERSTOOD_MAX = 20
"""How often workers may give a job back because their code does not know a name in it, before it fails."""
NOT_UNDERSTOOD_DELAY_MAX = timedelta(seconds=60)
"""The longest of these waits. All of them together are a quarter of an hour: longer than a rolling
deploy."""
NOT_STARTED_MAX = 20
"""How often workers may give a job back because they could not start it or store its outputs, before it
fails; with the same waits."""

OUTPUT_CHUNK_BYTES_MAX = 64 * 1024
OUTPUT_ATTEMPT_BYTES_MAX = 1024**3
"""The size of all events of one attempt, as `core/quota.py` counts it; output beyond it is not stored."""
OUTPUT_RESERVE_BYTES = 64 * 1024 * 1024
"""What events without output may take beyond that, so that the end of a process is still recorded."""
EVENT_BYTES = 64
"""What an event counts in addition to its data and attributes, so that empty ones are bounded as well."""
OUTPUT_BATCH_ITEMS_MAX = 50
OUTPUT_BATCH_BYTES_MAX = 256 * 1024
OUTPUT_BATCH_BYTES_ADVISED = 128 * 1024
"""The limit that clients of job.v1 receive. They flush a batch once it exceeds this, by up to one read."""
OUTPUT_READ_BYTES_MAX = 200 * 1024
"""The most that such a client reads at once, and so the most by which it exceeds that limit."""
OUTPUT_EVENT_BYTES_MAX = 512 * 1024
"""One event: large enough for a client with a limit of 256 KiB, as other servers give it, and one more
read; in base64 it still fits into a request."""
OUTPUT_LATE_MAX = timedelta(minutes=10)
"""How long after the end of its job an owner may still publish earlier output."""
EVENTS_PER_PUBLISH_MAX = 1_000
PUBLISH_BYTES = 1024 * 1024
"""Output in one commit; more is split. A single event always fits."""

OUTPUTS_NAMED_MAX = 100
"""Outputs that a job names one by one, so that the evidence for all of them fits into one event."""
OUTPUT_NAME_CHARACTERS_MAX = 1_024
OUTPUTS_NAMED_BYTES_MAX = 16 * 1024
"""All of these names together, for the same reason."""
ENTRIES_MAX = 10_000_000
TASK_BYTES_MAX = 1024 * 1024
"""One line of a manifest."""

KEY_LIFE_DEFAULT = timedelta(days=90)
KEY_LIFE_MAX = timedelta(days=366)
KEY_NAME_CHARACTERS_MAX = 120
"""With the prefix `user:` the name is an actor."""
KEYS_ACTIVE_MAX = 2
"""Active keys of one name: the old one and the new one, while they are exchanged."""
KEYS_MAX = 1_000
GRANT_PATTERNS_MAX = 64

WORKERS_MAX = 5_000
"""Workers that a store keeps; of more, those last seen longest ago are forgotten."""
ANNOUNCED_QUEUES_MAX = 100
ANNOUNCED_KINDS_MAX = 500
"""Queues and kinds of one worker that are kept, so that what all of them announce stays small."""

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]+\Z")


@lru_cache(maxsize=1024)
def check_id(value: str, what: str) -> str:
    """Return `value`, or raise `Invalid`: ids are short and safe in paths, URLs and terminals."""
    if not value:
        raise Invalid(f"{what} is empty.")
    if len(value) > ID_CHARACTERS_MAX:
        raise Invalid(f"{what} has {len(value)} characters; at most {ID_CHARACTERS_MAX} are taken.")
    if not _SAFE_ID.match(value) or not value.strip("."):
        raise Invalid(f"{what} {value!r} may only contain letters, digits and . _ : -, not dots alone.")
    return value


def check_owner(value: str) -> str:
    """Return an owner, or raise `Invalid`: an id, and after an @ the name of the key it used."""
    name, at, key = value.partition("@")
    check_id(name, "owner")
    if at:
        check_id(key, "The key of an owner")
    return value


def check_text(value: str, what: str, most: int) -> str:
    """Return `value`, or raise `Invalid` if it is too long or cannot be written as UTF-8."""
    if len(value) > most:
        raise Invalid(f"{what} has {len(value):,} characters; at most {most:,} are taken.")
    if not value.isascii() and not _encodable(value):
        raise Invalid(f"{what} contains what is not text: it cannot be written as UTF-8.")
    if "\0" in value:
        raise Invalid(f"{what} contains a NUL, which no database keeps as text.")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_bytes(value: bytes, what: str, most: int) -> bytes:
    if len(value) > most:
        raise Invalid(f"{what} has {len(value):,} bytes; at most {most:,} are taken.")
    return value


def check_lease(value: timedelta) -> timedelta:
    """Return the length of a lease, or raise `Invalid`."""
    if not LEASE_MIN <= value <= LEASE_MAX:
        raise Invalid(f"A lease lasts from 1 second to 24 hours, not {value}.")
    return value


SHORTENED = " … [shortened]"


def clip(text: str, most: int = MESSAGE_CHARACTERS_MAX) -> str:
    """Return free text from outside as it can be stored: shortened if long, with characters that databases
    refuse (lone surrogates, NUL) replaced. The rest stays, terminal escapes too."""
    if len(text) > most:
        text = text[: most - 15] + SHORTENED
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text.replace("\0", "?")


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Return the items in order, `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


def batches(
    weights: Iterable[tuple[int, int]], bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[tuple[int, int, int]]:
    """Yield where each batch begins and ends, and its bytes. `weights` are the items and bytes that each
    element counts for; a batch of more than one element is within `BATCH_ITEMS_MAX` and `bytes_max`."""
    start = end = count = size = 0
    for items, more in weights:
        if end > start and (count + items > BATCH_ITEMS_MAX or size + more > bytes_max):
            yield start, end, size
            start, count, size = end, 0, 0
        end, count, size = end + 1, count + items, size + more
    if end > start:
        yield start, end, size


def byte_batches(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """As `batches`, for elements of one item each; `sizes` are their bytes."""
    if len(sizes) <= BATCH_ITEMS_MAX and (size := sum(sizes)) <= BATCH_BYTES_MAX:
        return iter([(0, len(sizes), size)] if sizes else [])  # 0.02 us each, not 0.15
    return batches((1, size) for size in sizes)


def check_follow_ups(count: int) -> None:
    """Raise `Invalid` if there are too many follow-ups for one completion."""
    if count > FOLLOW_UPS_MAX:
        raise Invalid(f"{count} follow-ups at once; at most {FOLLOW_UPS_MAX} are taken.")


def check_delay(value: timedelta, what: str = "A delay") -> timedelta:
    """Return a delay, or raise `Invalid` unless it is from zero to a year."""
    if not timedelta() <= value <= DELAY_MAX:
        raise Invalid(f"{what} is from 0 to {DELAY_MAX.days} days, not {value}.")
    return value


def check_interval(value: timedelta) -> timedelta:
    """Return the heartbeat interval a claimant declares, or raise `Invalid`: three make a lease."""
    if not LEASE_MIN / 3 <= value <= LEASE_MAX / 3:
        raise Invalid(f"A heartbeat interval is a third of a lease, from 1/3 s to 8 h, not {value}.")
    return value


ACTOR_KINDS = ("user", "worker", "system", "validator", "sync")


def check_actor(actor: str) -> str:
    """Return an actor, or raise `Invalid`: a kind and a name, such as user:ana."""
    kind, colon, name = check_text(actor, "actor", ID_CHARACTERS_MAX).partition(":")
    if not colon or not name or kind not in ACTOR_KINDS:
        raise Invalid(f"actor {actor!r} needs a kind and a name, such as user:ana or worker:w-7.")
    return actor


def check_life(value: timedelta) -> timedelta:
    """Return the lifetime of a key, or raise `Invalid`."""
    if not timedelta() < value <= KEY_LIFE_MAX:
        raise Invalid(f"A key lasts for some time, {KEY_LIFE_MAX.days} days at most, not {value}.")
    return value
