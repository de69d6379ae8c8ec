"""Opening a registry: the one place that turns a URL into an adapter."""

from pathlib import Path
from urllib.parse import unquote

from holdfast.core.errors import Invalid
from holdfast.registry.local import LocalRegistry
from holdfast.system import SteadyClock, SystemIds

DEFAULT_STORE = "sqlite:///holdfast.db"
_LATER = ("postgresql", "postgres", "s3", "gs", "az", "file", "dynamodb", "http", "https")


async def open_registry(url: str = DEFAULT_STORE) -> LocalRegistry:
    """The registry behind `url`; close it when done. `Invalid` when the URL names nothing we know."""
    scheme, colon, _ = url.partition("://")
    ids = SystemIds()
    if not colon:
        raise Invalid(f"{url!r} is not a store URL; try {DEFAULT_STORE} or memory://")
    if scheme == "memory":
        from holdfast.stores.memory import MemoryStore

        return LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
    if scheme == "sqlite":
        from holdfast.stores.sqlite.store import SqliteStore

        return LocalRegistry(await SqliteStore.open(sqlite_path(url), ids=ids), ids)
    if scheme in _LATER:
        raise Invalid(f"{scheme}:// stores are not in this version; use {DEFAULT_STORE}.")
    raise Invalid(f"No store is called {scheme}://; try {DEFAULT_STORE} or memory://")


def sqlite_path(url: str) -> Path:
    """The file of a sqlite URL: three slashes for a relative path, four for an absolute one."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite" or not rest.startswith("/") or len(rest) < 2:
        raise Invalid(
            f"{url!r} names no file; write sqlite:///jobs.db or sqlite:////var/lib/jobs.db"
        )
    return Path(unquote(rest[1:]))
