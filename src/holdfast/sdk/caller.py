"""What is taken when nobody says: which store, and who acts."""

import os
import re
from functools import cache

from holdfast.sdk.open import DEFAULT_STORE


def chosen_url(given: str | None = None) -> str:
    """The URL that was given, else that of HOLDFAST_STORE, else the default."""
    return given or os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE


@cache
def actor() -> str:
    """The user of this process, in the characters an id may have."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        name = "unknown"
    return f"user:{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}"
