"""Apps that cannot be run are refused in words; a worker takes only the kinds and versions it has."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from floor import Floor, opened

from holdfast.core.state import State

OLD = """
@app.job
def resize(): return "v1"
"""
NEW = """
@app.job
def resize(): return "v1 in new"

@app.job(name="resize", version=2)
def resize_2(): return "v2"
"""
COUNTS = """
@app.job
def counts():
    for n in range(250_000): print(f"{n:019d}")
"""


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    with opened("sqlite", tmp_path, OLD) as floor:
        yield floor


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("nowhere:app", "There is no module nowhere"),
        ("plant:nothing", "plant has no nothing"),
        ("plant:resize", "not a holdfast.App"),
        ("plant", "names no app: write module:app"),
        ("broken:app", "broken could not be imported: RuntimeError('no')"),
        ("needs:app", "needs could not be imported: No module named 'absent_thing'"),
        ("exits:app", "exits could not be imported: SystemExit(5)"),
        ("dies:app", "ended at once"),
    ],
)
def test_an_app_that_cannot_be_run_is_said_in_words(floor: Floor, app: str, words: str) -> None:
    floor.write("raise RuntimeError('no')", "broken")
    floor.write("import absent_thing", "needs")
    floor.write("sys.exit(5)", "exits")
    floor.write("os._exit(5)", "dies")
    job_id = floor.enqueue("resize")

    worker = floor.worker("w-1", module=app.removesuffix(":app"), app=app)

    assert worker.wait(20) not in (0, -9)
    assert words in " ".join(floor.said("w-1").split())
    assert "Traceback (most recent call last)" not in floor.said("w-1") or "imported" in words
    assert floor.types(job_id) == ["job_queued"]


def test_unknown_kinds_and_versions_wait_for_a_worker_that_has_them(floor: Floor) -> None:
    floor.write(NEW, "new_plant")
    jobs = [floor.enqueue(kind) for kind in ("resize", "resize:2", "crop")]
    floor.worker("old", "--drain")
    assert floor.workers["old"].wait(20) == 0
    assert floor.job(jobs[0]).result == "v1"
    assert floor.types(jobs[1]) == ["job_queued"]

    floor.worker("new", "--drain", module="new_plant")
    assert floor.workers["new"].wait(20) == 0

    assert floor.job(jobs[1]).result == "v2"
    assert floor.job(jobs[2]).state is State.QUEUED
    assert floor.types(jobs[2]) == ["job_queued"]


def test_no_line_of_much_output_is_lost_or_out_of_order(floor: Floor) -> None:
    """20 MB by a command, 5 MB by a function, at the same time."""
    floor.write(COUNTS)
    function = floor.enqueue("counts")
    command = floor.enqueue("command", {"argv": ["seq", "-f", "%019.0f", "0", "999999"]})
    floor.worker("w-1", "--commands")

    floor.succeeded(command, 60)
    floor.succeeded(function, 60)

    for job_id, count in ((command, 1_000_000), (function, 250_000)):
        expected = b"".join(b"%019d\n" % n for n in range(count))
        assert floor.output(job_id) == expected
