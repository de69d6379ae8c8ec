"""Rebuild of a store: every record is made again from the log."""

from holdfast.core.errors import Invalid
from holdfast.ports import RebuildResult
from holdfast.sdk.open import check_exists
from holdfast.sdk.store_url import StoreUrl, shown_url
from holdfast.stores.sqlite.restore import locked_for_restore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds


async def rebuild(url: str, *, check: bool = False) -> RebuildResult:
    """Make every record of the store of `url` again; with `check`, change nothing and return what differs.

    Raise `Conflict` when another process uses the store (a process that is connected to PostgreSQL and does
    nothing there is not noticed), and `Corrupt` when the log is incomplete. Then nothing is changed.
    """
    store_url = StoreUrl(url)
    if store_url.is_postgres:
        from holdfast.stores.postgres.store import PostgresStore

        database = await PostgresStore.open(url, ids=SystemIds(), create=False)
        try:
            return await database.rebuild(check=check)
        finally:
            await database.close()
    if not store_url.is_file:
        raise Invalid(
            f"{shown_url(url)} cannot be rebuilt from here.",
            advice="Name a SQLite file or a PostgreSQL database with --store; for that of a server, run this"
            " on its machine.",
        )
    check_exists(url)
    if not check:
        with locked_for_restore(store_url.file):
            pass  # no other process uses it; one that comes now waits for the transaction
    file = await SqliteStore.open(store_url.file, ids=SystemIds())
    try:
        return await file.rebuild(check=check)
    finally:
        await file.close()
