"""README and the tour of the command line, typed and run from top to bottom as a newcomer would.

`python tests/docs/test_readme.py` writes what was really printed into both pages, but for what is elided.
"""

import re
import tempfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, differences, play, refreshed, write
from tests.stores.postgres.running_server import server
from verify.postgres_server import free_port

README = ROOT / "README.md"
TOUR = ROOT / "docs" / "tour.md"
PAGES = [pytest.param(page, id=page.name) for page in (README, TOUR)]
HOST = "db.example.org"
PLACE = "127.0.0.1:8080"
SHOW = "make run"
MASKS = (
    (r'"pid":\d+', '"pid":N'),
    (r'"seconds":[\d.]+', '"seconds":N'),
    (r"PostgreSQL [\d.]+ .*", "PostgreSQL N"),
    (r"\b[Ww]orker-\d\b", "WORKER"),
    (r"simulate-\d\d", "simulate-N"),
    (r"(job_queued +attempt 1 +)\S+", r"\1USER"),
    (r"\d+ needed", "N needed"),
    (r"\d+ events, \d+ transitions", "N events, N transitions"),
)


def typed(text: str) -> list[Block]:
    """What a newcomer types in an empty folder."""
    return [block for block in blocks(text) if block[0].typed != SHOW]


def here() -> tuple[dict[str, str], dict[str, str]]:
    """A database and a port of our own in place of those on the page; and the setting for that port."""
    server().sql(
        "DO $$ BEGIN CREATE ROLE ana LOGIN; EXCEPTION WHEN others THEN END $$;"
        " DROP DATABASE IF EXISTS jobs; CREATE DATABASE jobs OWNER ana;"
    )
    place = f"127.0.0.1:{free_port()}"
    database = f"127.0.0.1:{server().port}"
    return {HOST: database, PLACE: place}, {"HOLDFAST_SERVE_LISTEN": place}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_followed_to_its_end(page: Path, tmp_path: Path) -> None:
    text, (swaps, settings) = page.read_text(encoding="utf-8"), here()

    write(text, tmp_path)
    said = play(typed(text), tmp_path, swaps, settings)

    assert not (found := differences(typed(text), said, MASKS)), "\n".join(found)


@pytest.mark.slow
def test_what_make_run_shows_is_what_the_pages_show(tmp_path: Path) -> None:
    shown = [
        block
        for page in (README, TOUR)
        for block in blocks(page.read_text(encoding="utf-8"))
        if block[0].typed == SHOW
    ]
    assert "run: .venv/run/.ready" in (makefile := (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert "@$(RUN) -m holdfast demo\n" in makefile
    assert len(shown) == len(PAGES)

    [said] = play(shown[:1], tmp_path, {SHOW: "holdfast demo"})

    for block in shown:
        assert not (found := differences([block], [said], MASKS)), "\n".join(found)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_is_typed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    first = {found[1] for body in fences if (found := re.search(r"^\$ (.*)", body, re.MULTILINE))}

    assert first == {block[0].typed.partition("\n")[0] for block in blocks(text)}


def test_what_make_zombie_shows_has_the_words_of_the_program() -> None:
    page = (ROOT / "docs" / "fencing.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```\n( +takes every write.*?)^```", page, re.DOTALL | re.MULTILINE)
    program = (ROOT / "verify" / "zombie.py").read_text(encoding="utf-8")

    for line in shown.splitlines():
        for words in re.findall(r"[a-z](?:[a-z,'] ?)+", line.partition(":")[0]):
            assert words.strip() in program


def refresh(page: Path) -> None:
    """Write into the page what its commands print."""
    text, (known, given) = page.read_text(encoding="utf-8"), here()
    parts = typed(text)
    with tempfile.TemporaryDirectory() as folder:
        write(text, Path(folder))
        answers = iter(play(parts, Path(folder), known, given))
    whole = [
        next(answers) if block in parts else list(command.shown)
        for block in blocks(text)
        for command in block
    ]
    page.write_text(refreshed(text, whole), encoding="utf-8")


if __name__ == "__main__":
    refresh(README)
    refresh(TOUR)
