"""The small form of bench/guards.py: no owner is refused under load, and no stale token passes."""

from pathlib import Path

import pytest

from guards import PATTERNS, authority
from guards_load import false_refusals
from holdfast.core.errors import Fenced
from holdfast.fencing import Fence, Guard
from holdfast.sdk.open import open_registry
from tests.stores.postgres.running_server import fresh_url

WRITES = 5_000


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_no_owner_is_refused_under_load_and_no_stale_token_passes(
    pattern: str, store: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    registry = await open_registry(await fresh_url(tmp_path) if store == "postgres" else url)
    try:
        async with authority(pattern, registry) as asked:
            load = await false_refusals(registry, Guard(asked), pattern, WRITES)
    finally:
        await registry.close()
    assert load.writes >= WRITES
    assert load.refused == 0
    assert load.stale_refused == load.stale > 100


async def test_an_owner_that_is_refused_is_counted(tmp_path: Path) -> None:
    class Wrong(Guard):
        """A guard with a fault."""

        async def check(self, fence: Fence) -> None:
            raise Fenced("No.")

    registry = await open_registry("memory://")
    load = await false_refusals(registry, Wrong(), "marks only", 100)
    assert load.refused == load.writes >= 100
    await registry.close()
