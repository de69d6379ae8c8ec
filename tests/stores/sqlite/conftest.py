"""Fixtures for tests of the SQLite store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.failpoint import arm
from tests.stores.sqlite.backup_folder import BackupFolder


@pytest.fixture
def backups(tmp_path: Path) -> Iterator[BackupFolder]:
    """A folder with a store of one job, and a backup of it."""
    yield BackupFolder(tmp_path)
    arm(None)
