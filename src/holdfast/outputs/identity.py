"""The identity of an output store, which is kept in it, and the rules for paths of objects."""

import re

import msgspec
from msgspec import Struct

from holdfast.core.errors import Invalid, Unavailable
from holdfast.system import SystemIds

IDENTITY = "holdfast-outputs.json"
"""The object at the root that says which store this is."""

RESERVED_PREFIX = ".holdfast-"
"""The prefix of temporary files in a directory store; no object may have it."""

LAYOUT = 1
PATH_BYTES_MAX = 900
"""A key on S3 has at most 1,024 bytes; the rest is for the prefix of the store."""

PART_BYTES_MAX = 255

# Matches nearly every path: 0.5 us instead of 5 us, and a validation checks many paths.
_PLAIN = re.compile(r"\w[\w.:=@+-]{0,254}(?:/\w[\w.:=@+-]{0,254})*\Z", re.ASCII)


class Identity(Struct, frozen=True, kw_only=True):
    """The id of a store, and the layout of its contents."""

    holdfast: str = "outputs"
    layout: int = LAYOUT
    store_id: str


def new_identity() -> Identity:
    return Identity(store_id=SystemIds().new())


def encode_identity(identity: Identity) -> bytes:
    return msgspec.json.format(msgspec.json.encode(identity)) + b"\n"


def decode_identity(body: bytes, place: str) -> Identity:
    """Return the identity of the store at `place`; raise `Unavailable` if it cannot be read."""
    try:
        identity = msgspec.json.decode(body, type=Identity)
    except msgspec.DecodeError as error:
        raise Unavailable(f"{IDENTITY} in {place} is damaged: {error!s:.200}") from error
    if identity.holdfast != "outputs" or not identity.store_id:
        raise Unavailable(f"{IDENTITY} in {place} does not say which output store this is.")
    if identity.layout > LAYOUT:
        raise Unavailable(
            f"{place} is an output store of layout {identity.layout}, of a newer holdfast; this one"
            f" knows layout {LAYOUT}. Update holdfast here."
        )
    return identity


def no_store(place: str) -> Unavailable:
    return Unavailable(
        f"{place} is not an output store (is it mounted?): it has no {IDENTITY}."
        " Check the address; the first process that opens a store for writing creates it."
    )


def another_store(place: str, found: str, expected: str) -> Unavailable:
    return Unavailable(f"Another output store is at {place} now: {found}, not {expected}.")


def check_path(path: str) -> str:
    """Return the path of an object, or raise `Invalid`. A path is parts with slashes between them; none
    of them leads out of the store, on a disk or in a bucket."""
    _check_parts(path)
    if path == IDENTITY:
        raise Invalid(f"{IDENTITY} is reserved for the store.")
    return path


def check_prefix(prefix: str) -> str:
    """Return the folder `prefix` without a slash at its end; "" is the whole store."""
    folder = prefix.removesuffix("/")
    if folder:
        _check_parts(folder)
    return folder


def _check_parts(path: str) -> None:
    if not isinstance(path, str):
        raise Invalid(f"The path of an output is text, not {type(path).__name__}.")
    if len(path) <= PATH_BYTES_MAX and _PLAIN.match(path):
        return
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"The path {path!r:.200} cannot be written as UTF-8.") from error
    if len(encoded) > PATH_BYTES_MAX:
        raise Invalid(f"The path {path!r:.200} has more than {PATH_BYTES_MAX} bytes.")
    if any(byte < 0x20 or byte in b"\x7f\\" for byte in encoded):
        raise Invalid(
            f"The path {path!r:.200} has control characters or a backslash (a slash on some systems)."
        )
    for part in encoded.split(b"/"):
        if part in (b"", b".", b"..") or len(part) > PART_BYTES_MAX:
            raise Invalid(
                f"{path!r:.200} is not a path of an output: write parts of 1 to {PART_BYTES_MAX} bytes"
                " with slashes between them, none of them . or .."
            )
        if part.startswith(RESERVED_PREFIX.encode()):
            raise Invalid(
                f"{path!r:.200}: names that begin with {RESERVED_PREFIX} are reserved for the store."
            )
