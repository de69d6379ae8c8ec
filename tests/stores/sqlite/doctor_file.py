"""A file in trouble, and what the doctor finds in it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.core.spec import Spec
from holdfast.ports import Clock, Finding, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.sqlite import filesystem
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds

Trouble = Callable[[SqliteStore], object]


def diagnose(
    path: Path,
    trouble: Trouble = lambda store: None,
    *,
    clock: Clock | None = None,
    before: Callable[[LocalRegistry], Awaitable[object]] | None = None,
) -> list[Finding]:
    """Return the findings of the doctor, after `trouble` has been made for the open store."""

    async def main() -> list[Finding]:
        ids = SystemIds()
        store = await SqliteStore.open(path, ids=ids, clock=clock)
        registry = LocalRegistry(store, ids)
        try:
            if before is not None:
                await before(registry)
            trouble(store)
            return await registry.doctor()
        finally:
            await registry.close()

    return asyncio.run(main())


async def enqueue(registry: LocalRegistry, size: int = 0, jobs: int = 1) -> None:
    spec = Spec(payload=msgspec.Raw(b'"' + b"x" * size + b'"'))
    await registry.enqueue_many([JobRequest(spec=spec)] * jobs, actor="user:ana")


def findings_on(found: list[Finding], topic: str) -> list[tuple[str, str]]:
    return [(finding.level, finding.words) for finding in found if finding.topic == topic]


def finding_on(found: list[Finding], topic: str) -> Finding:
    [finding] = [finding for finding in found if finding.topic == topic]
    return finding


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str, options: str = "rw") -> None:
    """From here on the system says that the folder is of this kind."""
    mounts = folder / "mountinfo"
    mounts.write_text(
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        f"99 27 0:9 / {folder} rw,relatime shared:7 master:1 - {kind} server:/export {options}\n"
    )
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)


def owned_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one job, only its owner's, on a disk of a known kind."""
    mounted(monkeypatch, folder, "ext4")
    path = folder / "jobs.db"
    diagnose(path, before=enqueue)
    path.chmod(0o600)
    return path
