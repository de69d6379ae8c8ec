"""Access: who may do what in which queues and regions, and the API keys. Only a key's digest is stored."""

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
    """What a caller may do. No scope implies another, but `admin` may read everything."""

    SUBMIT = "submit"
    WORK = "work"
    OBSERVE = "observe"
    DATA = "observe:data"
    ADMIN = "admin"
    KEYS = "admin:keys"


_READING = (Scope.OBSERVE, Scope.DATA)


class Principal(Struct, frozen=True):
    """A caller: what it may do, on which queues and in which regions (all regions when none is named)."""

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
        """Whether every queue and every region can be reached."""
        return "*" in self.queues and not self.regions

    def reaches(self, queue: str, region: str | None) -> bool:
        """Return whether a job there can be reached; a job without a region is reached from every
        region."""
        near = not self.regions or region is None or region in self.regions
        return near and any(_matches(glob, queue) for glob in self.queues)

    @property
    def reach(self) -> str:
        """A digest that is the same for all keys with the same queues and regions; empty for everything."""
        if self.everywhere:
            return ""
        reached = repr((sorted(set(self.queues)), sorted(set(self.regions))))
        return sha256(reached.encode()).hexdigest()[:32]

    def has(self, scope: Scope) -> bool:
        return scope in self.scopes or (scope in _READING and Scope.ADMIN in self.scopes)

    def may(self, scope: Scope, queue: str, region: str | None) -> bool:
        return self.has(scope) and self.reaches(queue, region)


ANONYMOUS = Principal("anonymous", frozenset(Scope))
"""The caller of a server that requires no key: it listens on this machine only."""


class Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of an API key. `digest` is the SHA-256 of its text, in hex; the text is not stored."""

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
    id_bytes: bytes,
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
    """Return a key and its text, which cannot be derived again. Its id is made of `id_bytes`; `secret` are
    32 random bytes. Raise `Invalid` for a key that breaks a rule."""
    key_id = id_bytes[:_ID_BYTES].hex()
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
    """Return the id in a key's text; None for text that is not a key."""
    found = _TEXT.match(text)
    return found[1] if found else None


def key_accepts(key: Key, text: str, now: datetime) -> bool:
    """Return whether this is the key's text and the key is active. The comparison takes the same time
    however much of the text is right."""
    same = hmac.compare_digest(key.digest.encode(), _digest(text).encode())
    return same and key.active(now)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def scope_of(word: str) -> Scope:
    """Return the scope of this name, or raise `Invalid`."""
    try:
        return Scope(word)
    except ValueError:
        known = ", ".join(Scope)
        raise Invalid(f"{clip(word, 80)!r} is not a scope. There are: {known}.") from None


def check_key(key: Key) -> Key:
    """Return the key, or raise `Invalid` unless it has a name, a scope, a queue and a lifetime."""
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
                f"{clip(glob, 80)!r} names no queues: give a name, in which * stands for any characters,"
                " such as reports-*."
            )
    for region in key.regions:
        check_id(region, "A region")
    check_actor(key.created_by)
    if key.created_at.tzinfo is None or key.expires_at.tzinfo is None:
        raise Invalid("created_at and expires_at need a time zone.")
    check_life(key.expires_at - key.created_at)
    return key


def may_grant(maker: Principal, key: Key) -> bool:
    """Return whether the key has no scope, queue or region that its maker has not."""
    return (
        all(map(maker.has, key.scopes))
        and all(any(_covers(mine, glob) for mine in maker.queues) for glob in key.queues)
        and (not maker.regions or (bool(key.regions) and set(key.regions) <= set(maker.regions)))
    )


def _covers(mine: str, glob: str) -> bool:
    """Return True only if `mine` matches all that `glob` matches. False may be wrong, True never is."""
    if mine == glob:
        return True
    if "*" not in glob:
        return _matches(mine, glob)
    prefix = mine.removesuffix("*")
    return prefix != mine and "*" not in prefix and glob.startswith(prefix)


def _matches(glob: str, name: str) -> bool:
    """Return whether the name matches the pattern. Each part is searched once, from where the last
    ended."""
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
