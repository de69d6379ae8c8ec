"""What is taken when nobody says: which store, and who acts."""

import re
from functools import cache

from holdfast.sdk.open import DEFAULT_STORE
from holdfast.sdk.settings import chosen


def chosen_url(given: str | None = None) -> str:
    """The URL that was given, else that of HOLDFAST_STORE, else that in holdfast.toml, else the default."""
    if given:
        return given
    store = chosen("store")
    return str(store.value) if store else DEFAULT_STORE


@cache
def actor() -> str:
    """The user of this process, in the characters an id may have."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        name = "unknown"
    return f"user:{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}"
