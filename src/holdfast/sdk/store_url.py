"""Store URLs: what kind of store a URL names, and how it is shown without its password."""

import re
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from holdfast.core.errors import Invalid

_SECRET = re.compile("(?i)pass|secret|token")


class StoreUrl(Struct, frozen=True):
    """The URL of a store or of a server, as the user wrote it."""

    text: str

    @property
    def scheme(self) -> str:
        return self.text.partition(":")[0]

    @property
    def is_server(self) -> bool:
        return self.scheme.lower() in ("http", "https")

    @property
    def is_postgres(self) -> bool:
        return self.scheme in ("postgresql", "postgres")

    @property
    def is_file(self) -> bool:
        return self.scheme == "sqlite"

    @property
    def dies_with_process(self) -> bool:
        return self.scheme == "memory"

    @property
    def file(self) -> Path:
        """The file of a sqlite URL: three slashes for a relative path, four for an absolute one. Raises
        `Invalid` for any other URL."""
        if self.is_postgres:
            raise Invalid(
                "This is for SQLite files.",
                advice="PostgreSQL has its own tools: pg_dump and pg_restore, or a base backup; a"
                " restored database shuts out every earlier owner when it is opened.",
            )
        if self.is_server:
            raise Invalid(
                "This is for SQLite files, not for a server.",
                advice="Run it on the server's machine, with --store and the URL of the store that it"
                " serves.",
            )
        rest = self.text.partition("://")[2]
        if not self.is_file or not rest.startswith("/") or len(rest) < 2:
            raise Invalid(
                f"{shown_url(self.text)!r} does not name a file.",
                advice="Write sqlite:///jobs.db or sqlite:////var/lib/jobs.db",
            )
        return Path(unquote(rest[1:]))

    @property
    def name(self) -> str:
        """The name of the store everywhere on this machine: without password, with an absolute path."""
        return f"sqlite:///{self.file.resolve()}" if self.is_file else shown_url(self.text)


def shown_url(url: str) -> str:
    """Return the URL without its password, for display, logs and errors. Anything that may be a password
    is left out, too."""
    scheme, slashes, rest = url.partition("://")
    if (not slashes and re.search("[:@?]", unquote(url))) or "@" in unquote(scheme):
        return "***"  # mistyped: any part of it may be the password
    user, at, place = rest.rpartition("@")
    if not at and scheme not in ("sqlite", "memory") and "@" in unquote(rest):
        return f"{scheme}://***"
    if at and not re.fullmatch(r"[\w.+-]*", user):
        name = user.partition(":")[0]
        user = f"{name}:***" if re.fullmatch(r"[\w.+-]*", name) else "***"
    place, question, query = place.partition("?")
    query = "&".join(map(_shown_pair, query.split("&")))
    return f"{scheme}{slashes}{user}{at}{place}{question}{query}"


def _shown_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=***" if equals and _SECRET.search(unquote(name)) else pair


def url_secrets(*urls: str | None) -> list[str]:
    """Return what no output may show of these URLs: passwords, as written in the URL and decoded. A password
    that is also the name of the user, a host or the database is not a secret by itself."""
    found: list[str] = []
    for url in filter(None, urls):
        user, _, place = url.partition("://")[2].rpartition("@")
        name, colon, password = user.partition(":")
        place, _, query = place.partition("?")
        if colon:
            found.append(f":{password}@")
            if password not in (name, *re.split(r"[/:,]", place)):
                found += [password, unquote(password)]
        for value in re.findall(r"(?i)(?:password|secret|token)[^=&]*=([^&]*)", query):
            found += [value, unquote(value)]
    return found
