"""The output store of this process: which one it is, and how it is opened."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.outputs.lazily import LazyOutputs
from holdfast.outputs.opening import open_outputs
from holdfast.sdk.settings import chosen
from holdfast.sdk.store_url import StoreUrl
from holdfast.system import machine

if TYPE_CHECKING:
    from holdfast.ports import Registry
    from holdfast.ports.outputs import Inspector, Outputs

NO_OUTPUT_STORE = (
    "There is no output store to keep outputs in: set HOLDFAST_OUTPUTS, or say App(outputs=…), such as"
    " s3://bucket/results or a folder that every worker sees."
)


def chosen_outputs(store_url: str, given: str | None = None) -> str | None:
    """The output store that was given, else that of HOLDFAST_OUTPUTS, else that in holdfast.toml, else,
    for a store in a file, the folder beside it (`jobs.outputs` beside `jobs.db`), else none."""
    found = None if given else chosen("outputs")
    named = given if found is None else str(found.value)
    return _absolute(named) if named else default_outputs(store_url)


def _absolute(named: str) -> str:
    """A folder is named from here, also for a command that runs elsewhere."""
    return named if "://" in named else os.path.abspath(named)


def default_outputs(store_url: str) -> str | None:
    """Where outputs are kept when nobody says: beside a store that is a file, else nowhere."""
    return default_folder(store_url).as_uri() if StoreUrl(store_url).is_file else None


def default_folder(store_url: str) -> Path:
    """The folder beside the file of this store."""
    return StoreUrl(store_url).file.absolute().with_suffix(".outputs")


def lazy_outputs(store_url: str, given: str | None = None) -> LazyOutputs:
    """The output store that `chosen_outputs` names, opened when it is needed."""
    url = chosen_outputs(store_url, given)
    if url is None:
        return LazyOutputs()

    async def opening(create: bool) -> "Outputs | None":
        default = url == default_outputs(store_url)
        if default and not create and not default_folder(store_url).exists():
            return None
        return await open_outputs(url, create=create)

    return LazyOutputs(opening, url=url)


async def open_chosen(
    store_url: str, given: str | None = None, *, create: bool
) -> "Outputs | None":
    """The output store that `chosen_outputs` names, open; None when it names none. Close it when done.

    Without `create`, None as well while nobody has made the folder beside the file of the store."""
    return await lazy_outputs(store_url, given).get(create=create)


async def open_inspector(
    registry: "Registry", store_url: str, *, outputs: "Outputs | None", server: bool | None = None
) -> "Inspector":
    """Who is asked about outputs: this process, or, for a registry at a server (`server` says otherwise)
    without an output store of our own, that server."""
    at_server: Inspector | None = None
    if StoreUrl(store_url).is_server:
        from holdfast.wire.remote import RemoteRegistry
        from holdfast.wire.remote_inspector import RemoteInspector

        assert isinstance(registry, RemoteRegistry)  # as its URL says
        at_server = RemoteInspector(registry.link)
    if at_server is not None and (outputs is None if server is None else server):
        return at_server
    from holdfast.outputs.inspector import LocalInspector

    name = f"{machine()}-{os.getpid()}"
    return LocalInspector(registry, outputs, machine=machine(), name=name, submitter=at_server)
