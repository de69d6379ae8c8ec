"""Access: who may do what where, and the keys that say so. Only a key's digest is ever kept."""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    GRANT_PATTERNS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    QUEUE_CHARACTERS_MAX,
    check_actor,
    check_id,
    check_life,
    clip,
)


class Scope(StrEnum):
    """What a caller may do. None implies another, but `admin` may read everything."""

    SUBMIT = "submit"
    WORK = "work"
    OBSERVE = "observe"
    DATA = "observe:data"
    ADMIN = "admin"
    KEYS = "admin:keys"


_READING = (Scope.OBSERVE, Scope.DATA)


class Principal(Struct, frozen=True):
    """Somebody who calls: what they may do, on which queues, in which regions (none named: in all)."""

    name: str
    scopes: frozenset[Scope]
    queues: tuple[str, ...] = ("*",)
    regions: tuple[str, ...] = ()
    key_id: str | None = None

    @property
    def actor(self) -> str:
        return f"user:{self.name}"

    @property
    def everywhere(self) -> bool:
        """Whether every queue and every region is in reach."""
        return "*" in self.queues and not self.regions

    def reaches(self, queue: str, region: str | None) -> bool:
        """Whether a job there is in reach; one of no region is in every region's."""
        near = not self.regions or region is None or region in self.regions
        return near and any(_matches(glob, queue) for glob in self.queues)

    @property
    def reach(self) -> str:
        """The same text for all keys that reach the same queues and regions; empty for everything."""
        if self.everywhere:
            return ""
        places = repr((sorted(set(self.queues)), sorted(set(self.regions))))
        return sha256(places.encode()).hexdigest()[:32]

    def has(self, scope: Scope) -> bool:
        return scope in self.scopes or (scope in _READING and Scope.ADMIN in self.scopes)

    def may(self, scope: Scope, queue: str, region: str | None) -> bool:
        return self.has(scope) and self.reaches(queue, region)


ANYONE = Principal("anonymous", frozenset(Scope))
"""Whoever calls where no key is asked for: on this machine alone."""


class Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a key. `digest` is the SHA-256 of its text, in hex; nobody can get back from it."""

    key_id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] = ("*",)
    regions: tuple[str, ...] = ()
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    created_by: str

    @property
    def principal(self) -> Principal:
        return Principal(self.name, frozenset(self.scopes), self.queues, self.regions, self.key_id)

    def active(self, now: datetime) -> bool:
        return self.revoked_at is None and now < self.expires_at


_ID_BYTES = 6
_KEY_ID = re.compile(r"[0-9a-f]{12}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_TEXT = re.compile(r"hf_([0-9a-f]{12})_[A-Za-z0-9_-]{43}\Z")
_GLOB = re.compile(r"[A-Za-z0-9._:*-]+\Z")


def new_key(
    chance: bytes,
    secret: bytes,
    *,
    name: str,
    scopes: Iterable[str],
    queues: Iterable[str] = ("*",),
    regions: Iterable[str] = (),
    life: timedelta,
    now: datetime,
    created_by: str,
) -> tuple[Key, str]:
    """A key and its text, which nobody can make again. Its id is from `chance`; `secret` are 32 bytes
    that nobody can guess. `Invalid` for what no key can be."""
    key_id = chance[:_ID_BYTES].hex()
    text = f"hf_{key_id}_{urlsafe_b64encode(secret).rstrip(b'=').decode()}"
    key = Key(
        key_id=key_id,
        name=name,
        digest=_digest(text),
        scopes=tuple(dict.fromkeys(map(scope_of, scopes))),
        queues=tuple(dict.fromkeys(queues)),
        regions=tuple(dict.fromkeys(regions)),
        created_at=now,
        expires_at=now + check_life(life),
        created_by=created_by,
    )
    return check_key(key), text


def key_id_of(text: str) -> str | None:
    """The id in a key's text; None for what is no key."""
    found = _TEXT.match(text)
    return found[1] if found else None


def holds(key: Key, text: str, now: datetime) -> bool:
    """Whether this is the key's text, and the key still counts. How long the answer takes says nothing
    about how much of the text is right."""
    same = hmac.compare_digest(key.digest.encode(), _digest(text).encode())
    return same and key.active(now)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def scope_of(word: str) -> Scope:
    """The scope of this name, or `Invalid`."""
    try:
        return Scope(word)
    except ValueError:
        known = ", ".join(Scope)
        raise Invalid(f"{clip(word, 80)!r} is no scope. There are: {known}.") from None


def check_key(key: Key) -> Key:
    """Return the key, or raise `Invalid`: it must name somebody, allow something, somewhere, for a while."""
    check_id(key.name, "The name of a key")
    if len(key.name) > KEY_NAME_CHARACTERS_MAX:
        raise Invalid(f"The name of a key has at most {KEY_NAME_CHARACTERS_MAX} characters.")
    if not _KEY_ID.match(key.key_id) or not _DIGEST.match(key.digest):
        raise Invalid("A key has an id of 12 and a digest of 64 hexadecimal digits, in lower case.")
    if not key.scopes:
        raise Invalid(f"The key may do nothing: name at least one of {', '.join(Scope)}.")
    if not key.queues:
        raise Invalid("The key reaches no queue: name at least one, or * for all.")
    for patterns, what in ((key.queues, "queues"), (key.regions, "regions")):
        if len(patterns) > GRANT_PATTERNS_MAX:
            raise Invalid(
                f"A key names at most {GRANT_PATTERNS_MAX} {what}, not {len(patterns)}; say more with *."
            )
    for glob in key.queues:
        if not _GLOB.match(glob) or len(glob) > QUEUE_CHARACTERS_MAX:
            raise Invalid(
                f"{clip(glob, 80)!r} names no queues: give a name, with * for whatever may stand there,"
                " such as reports-*."
            )
    for region in key.regions:
        check_id(region, "A region")
    check_actor(key.created_by)
    if key.created_at.tzinfo is None or key.expires_at.tzinfo is None:
        raise Invalid("created_at and expires_at need a time zone.")
    check_life(key.expires_at - key.created_at)
    return key


def within(maker: Principal, key: Key) -> bool:
    """Whether the key reaches no further than who makes it: in scopes, queues and regions."""
    return (
        all(map(maker.has, key.scopes))
        and all(any(_covers(mine, glob) for mine in maker.queues) for glob in key.queues)
        and (not maker.regions or (bool(key.regions) and set(key.regions) <= set(maker.regions)))
    )


def _covers(mine: str, glob: str) -> bool:
    """Whether all that `glob` matches is matched by `mine`; a No may be wrong, a Yes never is."""
    if mine == glob:
        return True
    if "*" not in glob:
        return _matches(mine, glob)
    prefix = mine.removesuffix("*")
    return prefix != mine and "*" not in prefix and glob.startswith(prefix)


def _matches(glob: str, name: str) -> bool:
    """Whether the name is of this form. Each part is looked for once, from where the last one ended."""
    first, *rest = glob.split("*")
    if not rest:
        return glob == name
    *middle, last = rest
    start, end = len(first), len(name) - len(last)
    if start > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in middle:
        found = name.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True
