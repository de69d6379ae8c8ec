"""The migration benchmark in its short form: a store that an earlier holdfast has made and works on."""

from pathlib import Path

import pytest

from environments import Environment
from holdfast.core.state import State
from migration_page import page
from migration_run import HELD, PLACES, RATE, measure
from peers.before import REVISION, earlier

JOBS = 3_000


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("store", sorted(PLACES))
def test_a_store_of_schema_2_is_migrated_under_load_and_nothing_is_lost(store: str, tmp_path: Path) -> None:
    with earlier(REVISION) as before, PLACES[store]() as place:
        run = measure(place, Environment(before.command[:1], before.variables), tmp_path, JOBS)

    assert run.findings.wrong == []
    assert run.findings.acknowledged == run.findings.jobs > JOBS + HELD + RATE
    assert run.findings.verified == run.findings.jobs
    assert set(run.findings.states) == {State.SUCCEEDED, State.FAILED, State.QUEUED}
    assert run.restarts == []
    assert run.clients[0].lines("refused")
    assert "**none**" in page([run], {})
