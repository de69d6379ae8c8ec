"""Opens registries: the only module that turns a URL into an adapter."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from holdfast.core.errors import Invalid, NotFound
from holdfast.ports import Finding, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.settings import Setting, read_setting
from holdfast.sdk.store_url import StoreUrl, shown_url, url_secrets
from holdfast.system import SteadyClock, SystemClock, SystemIds

if TYPE_CHECKING:
    from holdfast.wire.remote import RemoteRegistry

DEFAULT_STORE = "sqlite:///holdfast.db"
_URLS = (
    "Write sqlite:///jobs.db for a file, postgresql://user@host/database for many machines,"
    " http://host:8080 for a server, or memory:// for tests."
)
NO_STORE = (
    "Go to its folder, name it with --store, or create it with your first job: holdfast submit -- echo hello"
)
_LATER = ("s3", "gs", "az", "file", "dynamodb")


async def open_registry(url: str = DEFAULT_STORE, *, create: bool = True) -> Registry:
    """Return the registry behind `url`, in this process or at a server; close it when done. Raises `Invalid`
    for an unknown kind of URL and, without `create`, `NotFound` for a store that does not exist.

    The key for a server is read from HOLDFAST_KEY, or from the file that HOLDFAST_KEY_FILE names;
    HOLDFAST_CA_FILE names certificates to trust in addition to the system's. Both files may be named in
    holdfast.toml instead.
    """
    if StoreUrl(url).is_server:
        return open_remote(url)
    return await open_local(url, create=create)


async def open_local(url: str, *, create: bool = True) -> LocalRegistry:
    """Return the registry over a store in this process."""
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

        return LocalRegistry(await SqliteStore.open(StoreUrl(url).file, ids=ids), ids)
    if StoreUrl(url).is_postgres:
        from holdfast.stores.postgres.store import PostgresStore

        return LocalRegistry(await PostgresStore.open(url, ids=ids, create=create), ids)
    if scheme in _LATER:
        raise Invalid(f"{scheme}:// stores are not in this version.", advice=_URLS)
    if not re.fullmatch("[A-Za-z0-9+.-]{1,20}", scheme):
        raise Invalid("That is not a store URL.", advice=_URLS)  # it may be a password
    raise Invalid(f"There are no {scheme}:// stores.", advice=_URLS)


async def doctor_store(url: str) -> list[Finding]:
    """Return what the store behind `url` guarantees. PostgreSQL is checked even before its tables exist."""
    try:
        registry = await open_registry(url, create=False)
    except NotFound:
        if not StoreUrl(url).is_postgres:
            raise
        from holdfast.stores.postgres.doctor import doctor_server

        return await doctor_server(url, ids=SystemIds())
    try:
        return await registry.doctor()
    finally:
        await registry.close()


def open_remote(url: str) -> "RemoteRegistry":
    """Return the registry at a server, or at any of several: http://one:8080,two:8080."""
    from holdfast.wire.remote import RemoteRegistry
    from holdfast.wire.server_connection import ServerConnection

    scheme, _, rest = url.partition("://")
    hosts, slash, path = rest.partition("/")
    addresses = tuple(f"{scheme.lower()}://{host}{slash}{path}".rstrip("/") for host in hosts.split(","))
    for address in addresses:
        parts = urlsplit(address)
        if not _server(parts) or parts.query or parts.fragment:
            raise Invalid(f"{shown_url(url)!r} does not name a server.", advice="Write http://127.0.0.1:8080")
        if "@" in parts.netloc:
            raise Invalid("A key does not belong in a URL.", advice="Put it in HOLDFAST_KEY.")
    link = ServerConnection(addresses, chosen_key(), _certificates())
    return RemoteRegistry(link, SystemClock(), SystemIds())


def _server(parts: SplitResult) -> bool:
    try:
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or too large
        return False


def _certificates() -> bytes | None:
    given = read_setting("ca_file")
    if given is None:
        return None
    try:
        return Path(str(given.value)).read_bytes()
    except OSError as error:
        raise Invalid(f"{given.origin} cannot be read: {error}") from error


def chosen_key() -> str | None:
    """Return the API key of this process, from its environment or from the key file."""
    if given := _key_file():
        try:
            return Path(str(given.value)).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{given.origin} cannot be read: {error}") from error
    return os.environ.get("HOLDFAST_KEY") or None


def own_environment() -> dict[str, str]:
    """Return the environment of this process with the path of its key file, wherever that was set: the
    code that keeps the key out of all output needs it."""
    given = _key_file()
    return {**os.environ, "HOLDFAST_KEY_FILE": str(given.value)} if given else {**os.environ}


def _key_file() -> Setting | None:
    """HOLDFAST_KEY_FILE wins over HOLDFAST_KEY, and both over the settings file."""
    if os.environ.get("HOLDFAST_KEY") and not os.environ.get("HOLDFAST_KEY_FILE"):
        return None
    return read_setting("key_file")


def check_exists(url: str, advice: str = NO_STORE) -> None:
    """Raise `NotFound` for a file that does not exist: a typo must not create an empty store."""
    store = StoreUrl(url)
    if store.is_file and not (path := store.file).exists():
        raise NotFound(f"There is no store at {path.absolute()}.", advice=advice)


def own_secrets(*urls: str | None) -> list[str]:
    """Return what no output of a worker may show: its key, and the passwords of its stores."""
    from holdfast.worker.environment import own_keys

    own = own_environment()
    return [
        *own_keys(own),
        *url_secrets(*urls, own.get("HOLDFAST_STORE"), own.get("HOLDFAST_OUTPUTS")),
    ]
