"""Opening a registry: the one place that turns a URL into an adapter."""

import re
from pathlib import Path
from urllib.parse import unquote

from holdfast.core.errors import Invalid, NotFound
from holdfast.registry.local import LocalRegistry
from holdfast.system import SteadyClock, SystemIds

DEFAULT_STORE = "sqlite:///holdfast.db"
_POSTGRES = ("postgresql", "postgres")
_LATER = ("s3", "gs", "az", "file", "dynamodb", "http", "https")


async def open_registry(url: str = DEFAULT_STORE, *, create: bool = True) -> LocalRegistry:
    """The registry behind `url`; close it when done. `Invalid` when the URL names nothing we know.

    Without `create`, `NotFound` for a store that is not there.
    """
    scheme, colon, _ = url.partition("://")
    ids = SystemIds()
    if not colon:
        raise Invalid(f"{url!r} is not a store URL; try {DEFAULT_STORE} or memory://")
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
        raise Invalid(f"{scheme}:// stores are not in this version; use {DEFAULT_STORE}.")
    raise Invalid(f"No store is called {scheme}://; try {DEFAULT_STORE} or memory://")


def check_exists(url: str) -> None:
    """Raise `NotFound` for a file that is not there: a slip of the pen must make no empty store."""
    if url.startswith("sqlite:") and not (path := sqlite_path(url)).exists():
        raise NotFound(f"There is no store at {path.absolute()}.")


def shown_url(url: str) -> str:
    """The URL without its password: for people, logs and errors."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", url)


def store_name(url: str) -> str:
    """The URL as it names one store from anywhere on this machine: without password, with whole path."""
    if url.startswith("sqlite:"):
        return f"sqlite:///{sqlite_path(url).resolve()}"
    return shown_url(url)


def sqlite_path(url: str) -> Path:
    """The file of a sqlite URL: three slashes for a relative path, four for an absolute one."""
    if url.partition("://")[0] in _POSTGRES:
        raise Invalid(
            "This is for SQLite files. PostgreSQL has its own tools: pg_dump and pg_restore, or a base"
            " backup; a restored database shuts out every earlier owner when it is opened."
        )
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite" or not rest.startswith("/") or len(rest) < 2:
        raise Invalid(
            f"{url!r} names no file; write sqlite:///jobs.db or sqlite:////var/lib/jobs.db"
        )
    return Path(unquote(rest[1:]))
