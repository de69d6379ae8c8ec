"""A folder with a store and its backup, and ways to disturb a backup or a restore."""

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.core.spec import Spec
from holdfast.failpoint import arm
from holdfast.ports import JobRequest
from holdfast.sdk.backup import Restored, backup, restore
from holdfast.sdk.open import open_registry

T = TypeVar("T")


class BackupFolder:
    """A folder with a store of one job, and a backup of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "jobs.db"
        self.copy = folder / "copy.db"
        self.enqueue("old")
        self.backup(self.copy)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.store}"

    def backup(self, target: Path) -> None:
        in_thread(backup(self.url, target))

    def restore(self, *, force: bool = True) -> Restored:
        return in_thread(restore(self.copy, self.url, force=force))

    def enqueue(self, job_id: str) -> None:
        async def main() -> None:
            registry = await open_registry(self.url)
            try:
                await registry.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor="user:ana")
            finally:
                await registry.close()

        in_thread(main())

    def jobs(self, path: Path | None = None) -> list[str]:
        async def main() -> list[str]:
            registry = await open_registry(f"sqlite:///{path or self.store}")
            try:
                assert (await registry.verify()).equal
                return [job.job_id for job in (await registry.list_jobs()).jobs]
            finally:
                await registry.close()

        return in_thread(main())

    def files(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir())

    def leave_a_log(self) -> None:
        """Make the files that a killed process leaves: the job `acknowledged` is in the log alone."""

        async def main() -> dict[Path, bytes]:
            registry = await open_registry(self.url)
            await registry.enqueue(JobRequest(spec=Spec(), job_id="acknowledged"), actor="user:ana")
            files = {file: file.read_bytes() for file in self.folder.glob("jobs.db*")}
            await registry.close()
            return files

        for file, content in in_thread(main()).items():
            file.write_bytes(content)


def in_thread(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, call).result(timeout=60)


def at(point: str, act: Callable[[], object]) -> None:
    """Do this once, when the failpoint is passed."""

    def hook(name: str) -> None:
        if name == point:
            arm(None)
            act()

    arm(hook)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fail_nth(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Let the n-th call of this function of `os` fail."""
    real = getattr(os, call)
    calls = iter(range(1, 1000))

    def failing(*values: object) -> object:
        if next(calls) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*values)

    monkeypatch.setattr(os, call, failing)
