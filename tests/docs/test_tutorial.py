"""The tutorial, typed and run from top to bottom as a newcomer would.

`python tests/docs/test_tutorial.py` writes what was really said into the page.
"""

import asyncio
import tempfile
from pathlib import Path

import psycopg
import pytest

import holdfast
from tests.docs.pages import ROOT, blocks, differences, files, play, refreshed, type_in, write
from tests.stores.postgres.running_server import fresh_url

PAGE = ROOT / "docs" / "tutorial.md"
SERVER = "postgresql://ana@db.example.org/jobs"
MASKS = (
    (r"postgresql://[^ ,]+", "SERVER"),
    (r'File "[^"]*/', 'File "'),
    (r"worker \S+, \d\d:\d\d:\d\d UTC", "worker NAME, TIME UTC"),
)


@pytest.mark.slow
def test_the_tutorial_can_be_followed_to_its_end(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    swaps = {SERVER: asyncio.run(fresh_url(tmp_path))}

    write(page, tmp_path, swaps)
    said = play(blocks(page), tmp_path, swaps)

    assert not (found := differences(blocks(page), said, MASKS)), "\n".join(found)


def test_the_first_app_of_the_tutorial_has_ten_lines_at_most() -> None:
    first = next(iter(files(PAGE.read_text(encoding="utf-8")).values()))

    assert len(first.partition("\n\n\n")[0].splitlines()) <= 10


@pytest.mark.slow
def test_the_code_for_those_who_come_from_elsewhere_runs(tmp_path: Path) -> None:
    store = asyncio.run(fresh_url(tmp_path))
    server = store.partition("?")[0]
    page = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    write(page, tmp_path, {SERVER: server})
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS invoice (id bigint)")

    patience = "import holdfast as h; [h.Client().wait(j.job_id) for j in h.Client().list(kind='pack')]"
    type_in(f"HOLDFAST_STORE='{store}' python transaction.py", tmp_path)
    told = type_in(
        f'holdfast worker shop:app & python use.py && python -c "{patience}"; kill $!; wait',
        tmp_path,
    )

    assert "order 7 is sent" in told  # A line of the log may be glued to it: two write here.
    with holdfast.Client(f"sqlite:///{tmp_path / 'holdfast.db'}") as client:
        orders = [(job.spec.kind, bytes(job.spec.payload)) for job in client.list()]
    assert orders == [
        ("send", b'{"order":7}'),
        ("send", b'{"order":8}'),
        ("send", b'{"order":20}'),
        ("send", b'{"order":21}'),
        ("pack", b'{"order":9}'),
        ("send", b'{"order":9}'),
    ]
    with holdfast.Client(store) as client:
        [made] = client.list()
    assert made.spec.kind == "send"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text, here = PAGE.read_text(encoding="utf-8"), Path(place)
        known = {SERVER: asyncio.run(fresh_url(here))}
        write(text, here, known)
        PAGE.write_text(refreshed(text, play(blocks(text), here, known)), encoding="utf-8")
