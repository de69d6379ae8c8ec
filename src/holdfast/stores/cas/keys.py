"""The keys of all objects, and what the keys of markers say."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from msgspec import Struct

INDEX = "index/"
FEED = "feed/"
PENDING = "pending/"
DUE = "due/"
API_KEYS = "keys/"
WORKERS = "workers/"
SECRET = "meta/secret"  # noqa: S105  # its key, not its value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _part(name: str) -> str:
    """Return one part of a key, without slashes and never `.` or `..`, for object stores that are
    folders."""
    return "%2E" * len(name) if name in (".", "..") else quote(name, safe=":")


def state(job_id: str) -> str:
    return f"jobs/{_part(job_id)}/state.json"


def home(event_id: str) -> str:
    """Return what stands for the job id in the key of an event about no job; it is not a valid job id."""
    return f"~{event_id}"


def log(job_id: str) -> str:
    return f"jobs/{_part(job_id)}/log/"


def log_after(job_id: str, number: int) -> str:
    """Return the key after which a listing has all segments with a later event than this one."""
    return f"{log(job_id)}{number:012d}~"


def segment(job_id: str, first: int, last: int) -> str:
    """Return the key of a segment. The last number comes first: one listing finds all behind a cursor."""
    return f"{log(job_id)}{last:012d}-{first:012d}.json"


def recorded(event_id: str) -> str:
    return f"events/{_part(event_id)}.json"


def claim(op_id: str) -> str:
    return f"claims/{_part(op_id)}"


def lock(key: str) -> str:
    return f"locks/{_part(key)}.json"


def api_key(key_id: str) -> str:
    return f"{API_KEYS}{_part(key_id)}.json"


def worker(name: str, instance: str) -> str:
    return f"{WORKERS}{_part(name)}/{_part(instance)}.json"


def pending(tag: str) -> str:
    return f"{PENDING}{tag}"


def tag_of(pending_key: str) -> str:
    return pending_key.removeprefix(PENDING)


def feed(number: int) -> str:
    return f"{FEED}{number:016d}.json"


def feed_number(key: str) -> int:
    return int(key.removeprefix(FEED).removesuffix(".json"))


def index(order: int, job_id: str) -> str:
    return f"{INDEX}{order:020d}/{_part(job_id)}"


def index_parts(key: str) -> tuple[int, str]:
    order, _, job_id = key.removeprefix(INDEX).partition("/")
    return int(order), unquote(job_id)


def queue(name: str) -> str:
    return f"queues/{_part(name)}/"


def priority_end(queue_name: str, priority: int) -> str:
    """Return a key that sorts after every marker of this priority."""
    return f"{queue(queue_name)}{priority}/~"


class ReadyMarker(Struct, frozen=True):
    """Says that a job may be ready from `ready_at` on; the record says whether it is.

    `serial` and `nonce` are those of the write that the marker was made for: a marker whose write can no
    longer land, or that the record no longer points to, is garbage.
    """

    queue: str
    priority: int
    ready_at: int
    order: int
    job_id: str
    serial: int
    nonce: str

    @property
    def key(self) -> str:
        return (
            f"{queue(self.queue)}{self.priority}/{self.ready_at:020d}-{self.order:020d}"
            f"/{_part(self.job_id)}/{self.serial}.{self.nonce}"
        )

    @property
    def place(self) -> tuple[object, ...]:
        return (self.queue, self.priority, self.ready_at, self.order)


def ready_marker(key: str) -> ReadyMarker:
    _, name, priority, place, job_id, write = key.split("/")
    ready_at, _, order = place.partition("-")
    serial, _, nonce = write.partition(".")
    return ReadyMarker(
        unquote(name), int(priority), int(ready_at), int(order), unquote(job_id), int(serial), nonce
    )


class DueMarker(Struct, frozen=True):
    """Says that a job may be due from `due_at` on; the record says when it is."""

    due_at: int
    job_id: str
    serial: int
    nonce: str

    @property
    def key(self) -> str:
        return f"{DUE}{self.due_at:020d}/{_part(self.job_id)}/{self.serial}.{self.nonce}"


def due_marker(key: str) -> DueMarker:
    _, due_at, job_id, write = key.split("/")
    serial, _, nonce = write.partition(".")
    return DueMarker(int(due_at), unquote(job_id), int(serial), nonce)
