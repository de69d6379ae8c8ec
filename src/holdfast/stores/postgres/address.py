"""The address of a store: a PostgreSQL URL, and which schema of the database holds the tables."""

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.stores.postgres.statements import DEFAULT_SCHEMA

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(:0*([0-9]{1,5}))?")
_PORT_MAX = 65535


class PostgresAddress(Struct, frozen=True):
    """What is needed to connect; `shown` is for messages, and has no password."""

    url: str
    schema: str
    shown: str
    user: str | None
    database: str | None


def address_of(url: str) -> PostgresAddress:
    """Return the address in a URL such as postgresql://ana@db.example.org/jobs?schema=holdfast."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may contain a part of the password
        raise Invalid("That is not a PostgreSQL URL.", advice=_EXAMPLE) from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    hosts = [_HOST.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    host = unquote(parts.netloc.rpartition("@")[2])
    misplaced = "@" in host + parts.path + parts.fragment + "".join(name for name, _ in query)
    if misplaced or "\0" in url or not all(h and int(h[3] or 0) <= _PORT_MAX for h in hosts):
        raise Invalid("That is not a PostgreSQL URL.", advice=_EXAMPLE)
    schema = dict(query).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise Invalid(
            f"schema={schema!r} cannot be used.",
            advice="Its name has small letters, digits and underscores, not a digit first and not pg_.",
        )
    rest = urlencode([(name, value) for name, value in query if name != "schema"])
    bare = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    shown = parts.netloc.rpartition("@")[2] or dict(query).get("host", "localhost")
    database = unquote(parts.path.lstrip("/")) or None
    user = unquote(parts.username) if parts.username else None
    return PostgresAddress(bare, schema, f"{shown}/{database or ''}", user, database)


_EXAMPLE = "Write postgresql://user@host:5432/database; in a password, / ? # and @ are %2F %3F %23 and %40."
