"""The output store of this process: how it is chosen, and how it is opened."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.outputs.lazy import LazyOutputs
from holdfast.outputs.url import open_outputs
from holdfast.sdk.settings import read_setting
from holdfast.sdk.store_url import StoreUrl
from holdfast.system import machine_name

if TYPE_CHECKING:
    from holdfast.ports import Registry
    from holdfast.ports.outputs import Inspector, Outputs


def chosen_outputs(store_url: str, given: str | None = None) -> str | None:
    """Return the output store that was given, else HOLDFAST_OUTPUTS, else that in holdfast.toml, else, for a
    store in a file, the folder beside it (`jobs.outputs` beside `jobs.db`), else None."""
    found = None if given else read_setting("outputs")
    named = given if found is None else str(found.value)
    return _absolute(named) if named else default_outputs(store_url)


def _absolute(named: str) -> str:
    """Make a folder absolute, for a command that runs in another folder."""
    return named if "://" in named else os.path.abspath(named)


def default_outputs(store_url: str) -> str | None:
    """Return the default output store: the folder beside a store in a file, else None."""
    return default_folder(store_url).as_uri() if StoreUrl(store_url).is_file else None


def default_folder(store_url: str) -> Path:
    """Return the folder beside the file of this store."""
    return StoreUrl(store_url).file.absolute().with_suffix(".outputs")


def lazy_outputs(store_url: str, given: str | None = None) -> LazyOutputs:
    """Return the output store that `chosen_outputs` names, to be opened when it is needed."""
    url = chosen_outputs(store_url, given)
    if url is None:
        return LazyOutputs()

    async def opening(create: bool) -> "Outputs | None":
        default = url == default_outputs(store_url)
        new = default and not default_folder(store_url).exists()
        if new and not create:
            return None
        opened = await open_outputs(url, create=create)
        if new:
            os.chmod(default_folder(store_url), 0o700)  # as the file beside it
        return opened

    return LazyOutputs(opening, url=url)


async def open_chosen_outputs(store_url: str, given: str | None = None, *, create: bool) -> "Outputs | None":
    """Return the output store that `chosen_outputs` names, open; None when it names none. Close it when done.

    Without `create`, also None while the folder beside the file of the store does not exist."""
    return await lazy_outputs(store_url, given).get(create=create)


async def open_inspector(
    registry: "Registry", store_url: str, *, outputs: "Outputs | None", server: bool | None = None
) -> "Inspector":
    """Return the inspector of outputs: in this process, or that of the server, when the registry is at a
    server and this process has no output store of its own. `server` decides otherwise."""
    at_server: Inspector | None = None
    if StoreUrl(store_url).is_server:
        from holdfast.wire.remote import RemoteRegistry
        from holdfast.wire.remote_inspector import RemoteInspector

        assert isinstance(registry, RemoteRegistry)  # as its URL says
        at_server = RemoteInspector(registry.connection)
    if at_server is not None and (outputs is None if server is None else server):
        return at_server
    from holdfast.outputs.inspector import LocalInspector

    name = f"{machine_name()}-{os.getpid()}"
    return LocalInspector(registry, outputs, machine=machine_name(), name=name, submitter=at_server)
