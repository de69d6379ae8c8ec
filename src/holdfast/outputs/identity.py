"""What every output store has: a name of its own, kept in it, and rules for the paths of its objects."""

import re

import msgspec
from msgspec import Struct

from holdfast.core.errors import Invalid, Unavailable
from holdfast.system import SystemIds

IDENTITY = "holdfast-outputs.json"
"""The object at the root that says which store this is."""

OURS = ".holdfast-"
"""What the names of drafts begin with, in a directory; no object may be called so."""

LAYOUT = 1
PATH_BYTES_MAX = 900
"""A key on S3 has at most 1,024 bytes; the rest is for the prefix of the store."""

PART_BYTES_MAX = 255

# What nearly every path is like: 0.5 us instead of 5, of which a validation has many.
_PLAIN = re.compile(r"\w[\w.:=@+-]{0,254}(?:/\w[\w.:=@+-]{0,254})*\Z", re.ASCII)


class Identity(Struct, frozen=True, kw_only=True):
    """The name of a store, and how what is in it lies there."""

    holdfast: str = "outputs"
    layout: int = LAYOUT
    store_id: str


def new_identity() -> Identity:
    return Identity(store_id=SystemIds().new())


def encode_identity(identity: Identity) -> bytes:
    return msgspec.json.format(msgspec.json.encode(identity)) + b"\n"


def decode_identity(body: bytes, place: str) -> Identity:
    """What the store at `place` says about itself; `Unavailable` when we cannot make sense of it."""
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
        " Check the address; a store is made by whoever opens it to write."
    )


def another_store(place: str, found: str, expected: str) -> Unavailable:
    return Unavailable(f"At {place} is another output store now: {found}, not {expected}.")


def check_path(path: str) -> str:
    """Return the path of an object, or raise `Invalid`: parts with slashes between them, none of which
    leads anywhere else, on a disk or in a bucket."""
    _check_parts(path)
    if path == IDENTITY:
        raise Invalid(f"{IDENTITY} is the store's own.")
    return path


def check_prefix(prefix: str) -> str:
    """Return the folder that `prefix` names, without a slash at its end; "" is the whole store."""
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
            f"The path {path!r:.200} has control characters or a backslash, which is a slash to some."
        )
    for part in encoded.split(b"/"):
        if part in (b"", b".", b"..") or len(part) > PART_BYTES_MAX:
            raise Invalid(
                f"{path!r:.200} is no path of an output: write parts of 1 to {PART_BYTES_MAX} bytes"
                " with slashes between them, none of them . or .."
            )
        if part.startswith(OURS.encode()):
            raise Invalid(f"{path!r:.200}: names that begin with {OURS} are the store's own.")
