"""Django in this process: its settings, with the PostgreSQL server of the tests and a SQLite file."""

from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections

from tests.stores.postgres.running_server import server


@cache
def _configure() -> None:
    found = urlsplit(server().url())
    settings.configure(
        USE_TZ=True,
        TIME_ZONE="Europe/Vienna",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": found.hostname,
                "PORT": found.port,
                "USER": found.username,
                "NAME": found.path.strip("/"),
            },
            "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
    )
    django.setup()


def configure(folder: Path) -> None:
    """Set Django up, once for a process; `file` is a SQLite file in this folder."""
    _configure()
    connections["file"].settings_dict["NAME"] = str(folder / "django.sqlite3")
