"""The defaults of this process: its store, and the actor of its commands."""

import re
from functools import cache

from holdfast.sdk.open import DEFAULT_STORE
from holdfast.sdk.settings import read_setting


def chosen_url(given: str | None = None) -> str:
    """Return the URL that was given, else HOLDFAST_STORE, else that in holdfast.toml, else the default."""
    if given:
        return given
    store = read_setting("store")
    return str(store.value) if store else DEFAULT_STORE


@cache
def actor() -> str:
    """Return the user of this process, in the characters that an id may have."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        name = "unknown"
    return f"user:{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}"
