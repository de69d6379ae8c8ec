"""Opening a registry: the one place that turns a URL into an adapter."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.core.errors import Invalid, NotFound
from holdfast.ports import Finding, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.settings import Given, chosen
from holdfast.system import SteadyClock, SystemClock, SystemIds

if TYPE_CHECKING:
    from holdfast.wire.remote import RemoteRegistry

DEFAULT_STORE = "sqlite:///holdfast.db"
_POSTGRES = ("postgresql", "postgres")
_SERVERS = ("http", "https")
_URLS = (
    "Write sqlite:///jobs.db for a file, postgresql://user@host/database for many machines,"
    " http://host:8080 for a server, or memory:// for tests."
)
NO_STORE = (
    "Go to the folder where it is, name it with --store, or make it with your first job:"
    " holdfast submit -- echo hello"
)
_SECRET = re.compile("(?i)pass|secret|token")
_LATER = ("s3", "gs", "az", "file", "dynamodb")


async def open_registry(url: str = DEFAULT_STORE, *, create: bool = True) -> Registry:
    """The registry behind `url`, in this process or at a server; close it when done. `Invalid` when the
    URL names nothing we know.

    Without `create`, `NotFound` for a store that is not there. A server is shown the key in HOLDFAST_KEY,
    or in the file that HOLDFAST_KEY_FILE names; HOLDFAST_CA_FILE names certificates to trust beside the
    system's. Both files may be named in holdfast.toml instead.
    """
    if url.partition("://")[0].lower() in _SERVERS:
        return open_remote(url)
    return await open_local(url, create=create)


async def open_local(url: str, *, create: bool = True) -> LocalRegistry:
    """The registry over a store in this process."""
    scheme, colon, _ = url.partition("://")
    ids = SystemIds()
    if not colon:
        raise Invalid(f"{shown_url(url)!r} is not a store URL.", advice=_URLS)
    if not create:
        check_exists(url)
    if scheme == "memory":
        from holdfast.stores.memory import MemoryStore

        return LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
    if scheme == "sqlite":
        from holdfast.stores.sqlite.store import SqliteStore

        return LocalRegistry(await SqliteStore.open(sqlite_path(url), ids=ids), ids)
    if scheme in _POSTGRES:
        from holdfast.stores.postgres.store import PostgresStore

        return LocalRegistry(await PostgresStore.open(url, ids=ids, create=create), ids)
    if scheme in _LATER:
        raise Invalid(f"{scheme}:// stores are not in this version.", advice=_URLS)
    if not re.fullmatch("[A-Za-z0-9+.-]{1,20}", scheme):
        raise Invalid("That is not a store URL.", advice=_URLS)  # it may be a password
    raise Invalid(f"No store is called {scheme}://.", advice=_URLS)


async def examine_store(url: str) -> list[Finding]:
    """What the store behind `url` guarantees. PostgreSQL is asked although our tables are not made yet."""
    try:
        registry = await open_registry(url, create=False)
    except NotFound:
        if url.partition("://")[0] not in _POSTGRES:
            raise
        from holdfast.stores.postgres.store import PostgresStore

        return await PostgresStore.examine_server(url, ids=SystemIds())
    try:
        return await registry.examine()
    finally:
        await registry.close()


def open_remote(url: str) -> "RemoteRegistry":
    """The registry at a server, or at any of several: http://one:8080,two:8080."""
    from holdfast.wire.link import Link
    from holdfast.wire.remote import RemoteRegistry

    scheme, _, rest = url.partition("://")
    hosts, slash, path = rest.partition("/")
    addresses = tuple(
        f"{scheme.lower()}://{host}{slash}{path}".rstrip("/") for host in hosts.split(",")
    )
    for address in addresses:
        parts = urlsplit(address)
        if not _server(parts) or parts.query or parts.fragment:
            raise Invalid(
                f"{shown_url(url)!r} names no server.", advice="Write http://127.0.0.1:8080"
            )
        if "@" in parts.netloc:
            raise Invalid("A key does not belong into a URL.", advice="Put it into HOLDFAST_KEY.")
    link = Link(addresses, chosen_key(), _certificates())
    return RemoteRegistry(link, SystemClock(), SystemIds())


def _server(parts: SplitResult) -> bool:
    try:
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or too large a one
        return False


def _certificates() -> bytes | None:
    given = chosen("ca_file")
    if given is None:
        return None
    try:
        return Path(str(given.value)).read_bytes()
    except OSError as error:
        raise Invalid(f"{given.origin} cannot be read: {error}") from error


def chosen_key() -> str | None:
    """The key of this process, from its environment or the file that is named for it."""
    if given := _key_file():
        try:
            return Path(str(given.value)).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{given.origin} cannot be read: {error}") from error
    return os.environ.get("HOLDFAST_KEY") or None


def own_environment() -> dict[str, str]:
    """The environment of this process, and in it, wherever it was set, the file of its key: whoever has
    to keep the key out of all output must know it."""
    given = _key_file()
    return {**os.environ, "HOLDFAST_KEY_FILE": str(given.value)} if given else {**os.environ}


def _key_file() -> Given | None:
    """HOLDFAST_KEY_FILE goes before HOLDFAST_KEY, and both before a file of settings."""
    if os.environ.get("HOLDFAST_KEY") and not os.environ.get("HOLDFAST_KEY_FILE"):
        return None
    return chosen("key_file")


def check_exists(url: str) -> None:
    """Raise `NotFound` for a file that is not there: a slip of the pen must make no empty store."""
    if url.startswith("sqlite:") and not (path := sqlite_path(url)).exists():
        raise NotFound(
            f"There is no store at {path.absolute()}.",
            advice=NO_STORE,
        )


def shown_url(url: str) -> str:
    """The URL without its password: for people, logs and errors. What may be one is left out, too."""
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


def own_secrets(*urls: str | None) -> list[str]:
    """What no output of a worker may show: its key, and the passwords of its stores."""
    from holdfast.worker.environment import own_keys

    own = own_environment()
    return [
        *own_keys(own),
        *url_secrets(*urls, own.get("HOLDFAST_STORE"), own.get("HOLDFAST_OUTPUTS")),
    ]


def url_secrets(*urls: str | None) -> list[str]:
    """What no output may show of these URLs: passwords, as they are written there and as they are. One that
    is also the name of a user, a host or a database is no secret by itself."""
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


def _shown_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=***" if equals and _SECRET.search(unquote(name)) else pair


def store_name(url: str) -> str:
    """The URL as it names one store from anywhere on this machine: without password, with whole path."""
    if url.startswith("sqlite:"):
        return f"sqlite:///{sqlite_path(url).resolve()}"
    return shown_url(url)


def sqlite_path(url: str) -> Path:
    """The file of a sqlite URL: three slashes for a relative path, four for an absolute one."""
    scheme, _, rest = url.partition("://")
    if scheme in _POSTGRES:
        raise Invalid(
            "This is for SQLite files.",
            advice="PostgreSQL has its own tools: pg_dump and pg_restore, or a base backup; a restored"
            " database shuts out every earlier owner when it is opened.",
        )
    if scheme in _SERVERS:
        raise Invalid(
            "This is for SQLite files, not for a server.",
            advice="Do it where the server is, with --store and the URL of the store that it serves.",
        )
    if scheme != "sqlite" or not rest.startswith("/") or len(rest) < 2:
        raise Invalid(
            f"{shown_url(url)!r} names no file.",
            advice="Write sqlite:///jobs.db or sqlite:////var/lib/jobs.db",
        )
    return Path(unquote(rest[1:]))
