"""The defaults of this process: its store, and the actor of its commands."""

import logging
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from holdfast.core.errors import Invalid
from holdfast.sdk.open import DEFAULT_STORE
from holdfast.sdk.settings import read_setting
from holdfast.sdk.store_url import StoreUrl, shown_url

log = logging.getLogger("holdfast")


def chosen_url(given: str | None = None) -> str:
    """Return the URL that was given, else HOLDFAST_STORE, else that in holdfast.toml, else the default."""
    if given:
        return given
    store = read_setting("store")
    return str(store.value) if store else DEFAULT_STORE


def unused_store(url: str) -> str | None:
    """Return what to tell where the code names another store than HOLDFAST_STORE, else None."""
    named = os.environ.get("HOLDFAST_STORE")
    if not named or named == url or StoreUrl(url).dies_with_process:
        return None
    with suppress(Invalid):  # opening it raises the error
        if StoreUrl(named).name == StoreUrl(url).name:
            return None
    return (
        f"The store is {shown_url(url)}, as the code says; HOLDFAST_STORE={shown_url(named)} is not used."
        " Leave the URL out of the code to use it."
    )


@cache
def warn_of_unused_store(url: str) -> None:
    """Log, once in a process, that HOLDFAST_STORE is not used."""
    if told := unused_store(url):
        log.warning(told)


def spool_folder(given: str | None = None) -> Path:
    """Return the folder for the output of workers: as given, else that of this user's state."""
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "holdfast" / "spool"


@cache
def actor() -> str:
    """Return the user of this process, in the characters that an id may have."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        name = "unknown"
    return f"user:{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}"
