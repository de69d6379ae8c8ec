"""Markers: small files that say that a result is whole and which task it belongs to."""

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import clip
from holdfast.core.manifest import MARKER, Task, check_task, check_task_output, describe_difference
from holdfast.core.outputs import Output
from holdfast.ports.outputs import Digest

FORMAT = 1
ERROR = "error.json"
NO_MARKER = f"no {MARKER}"
_ERROR_CHARACTERS = 300
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class ResultAuthor(Struct, frozen=True):
    """Who wrote a result: a job, and the token it held."""

    job_id: str
    token: int


class Marker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of `result.json` or `error.json`: the task (without the names of its outputs), and the
    digest of every file."""

    format: int
    task: Task
    files: dict[str, Digest]
    writer: ResultAuthor
    error: str | None = None


def file_path(folder: str, name: str, sha256: str) -> str:
    return f"{folder}{sha256[:16]}-{name}"


class FolderScan(Struct, frozen=True, kw_only=True):
    """What is in a folder; `missing` says why it does not count. `of_another`: it is another task's."""

    folder: str
    missing: str | None = None
    of_another: bool = False
    marker: Marker | None = None
    sha256: str | None = None

    @property
    def files(self) -> dict[str, Digest]:
        """The files to compare: none if the folder does not count anyway."""
        return self.marker.files if self.marker is not None and self.missing is None else {}

    @property
    def free(self) -> bool:
        """Whether the folder has no marker yet."""
        return self.missing == NO_MARKER

    @property
    def paths(self) -> list[str]:
        return [file_path(self.folder, name, expected.sha256) for name, expected in self.files.items()]

    def with_files(self, found: "Sequence[Digest | None]") -> "FolderScan":
        """Return this with the digests `found` of its files compared."""
        for (name, expected), digest in zip(self.files.items(), found, strict=True):
            if digest != expected:
                return replace(self, missing=_fault(name, expected, digest))
        return self

    def rank(self) -> int:
        """Return how much this says about the task: 0 nothing, 1 another task's, 2 an error, 3 a result."""
        if self.missing is None or self.free:
            return 3 if self.missing is None else 0
        return 1 if self.of_another else 2

    def row(self, task: Task) -> tuple[Output, ResultAuthor | None]:
        if self.missing is not None or self.marker is None:
            return Output(name=task.name, path=self.folder, missing=self.missing), None
        size = sum(expected.size for expected in self.marker.files.values())
        output = Output(name=task.name, path=self.folder, size=size, sha256=self.sha256)
        return output, self.marker.writer


def read_marker(task: Task, folder: str, body: bytes | None, name: str = MARKER) -> FolderScan:
    """Return what the marker in a folder says, before its files are compared."""
    if body is None:
        return FolderScan(folder=folder, missing=NO_MARKER)
    marker = _decode(folder + name, body)
    if marker is None or (name == ERROR and marker.error is None):
        return FolderScan(folder=folder, missing=f"its {name} cannot be read")
    of = describe_difference(task, marker.task)
    if of is not None:
        return FolderScan(folder=folder, missing=f"it is the result of {of}", of_another=True)
    missing = None
    if marker.error is not None:
        missing = f"it is an error result: {clip(marker.error, _ERROR_CHARACTERS)}"
    elif lacking := sorted(set(task.outputs) - set(marker.files)):
        missing = f"it lacks {', '.join(lacking)}"
    digest = hashlib.sha256(body).hexdigest()
    return FolderScan(folder=folder, missing=missing, marker=marker, sha256=digest)


def _fault(name: str, expected: Digest, found: Digest | None) -> str:
    if found is None:
        return f"{name} is gone"
    if found.size != expected.size:
        return f"{name} has {found.size:,} bytes, not {expected.size:,}"
    return f"the checksum of {name} differs"


def _decode(path: str, body: bytes) -> Marker | None:
    """Return the marker, or None if it cannot be read."""
    written_as = _format(body)
    if written_as > FORMAT:
        raise Unavailable(
            f"{path} is of a newer holdfast (format {written_as}; this one knows {FORMAT}). Update this one."
        )
    try:
        marker = _MARKERS.decode(body)
        check_files(check_task(marker.task), marker.files, marker.error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Invalid):
        return None
    known = all(_SHA256.match(expected.sha256) for expected in marker.files.values())
    return marker if known else None


def _format(body: bytes) -> int:
    try:
        return _HEADS.decode(body).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def check_files(task: Task, files: Mapping[str, object], error: str | None) -> None:
    for name in files:
        check_task_output(name)
    if error is not None:
        return
    if not files:
        raise Invalid("A result has at least one file, unless it is an error.")
    if lacking := sorted(set(task.outputs) - set(files)):
        raise Invalid(f"The result lacks {', '.join(lacking)}, which the task asks for.")


def as_bytes(files: Mapping[str, object]) -> dict[str, bytes]:
    """Return copies of the files; raise `Invalid` for a body that is not bytes."""
    for name, body in files.items():
        if not isinstance(body, bytes | bytearray | memoryview):
            raise Invalid(f"{name} is a {type(body).__name__}, not bytes: encode it first.")
    return {name: bytes(body) for name, body in files.items()}  # type: ignore[call-overload]


def digests(files: Mapping[str, bytes]) -> dict[str, Digest]:
    return {name: Digest(len(body), hashlib.sha256(body).hexdigest()) for name, body in files.items()}


class _Head(Struct, frozen=True):
    format: int


def encode(marker: Marker) -> bytes:
    return _ENCODER.encode(marker) + b"\n"


_ENCODER = msgspec.json.Encoder(order="deterministic")
_MARKERS = msgspec.json.Decoder(Marker)
_HEADS = msgspec.json.Decoder(_Head)
