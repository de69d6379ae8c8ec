"""The README, typed and run from top to bottom as a newcomer would.

`python tests/test_readme.py` writes what was really said into the page, but for what is elided.
"""

import re
import tempfile
from pathlib import Path

import pytest

from pages import ROOT, Block, blocks, differences, play, refreshed, write
from postgres_world import server
from verify.postgres_server import free_port

PAGE = ROOT / "README.md"
HOST = "db.example.org"
PLACE = "127.0.0.1:8080"
SHOW = "make run"
ELSEWHERE = {
    # This program types all of it itself.
    "python sweep.py": "tests/test_examples.py",
    # Seeds and planted bugs are the simulation's own matter: tests/simulation covers this block.
    "python -m holdfast.testing.simulation --seeds 20": "tests/simulation",
}
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


def readme() -> str:
    return PAGE.read_text(encoding="utf-8")


def typed(page: str) -> list[Block]:
    """What a newcomer types in an empty folder."""
    return [block for block in blocks(page) if block[0].typed not in (SHOW, *ELSEWHERE)]


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
def test_the_readme_can_be_followed_to_its_end(tmp_path: Path) -> None:
    page, (swaps, settings) = readme(), here()

    write(page, tmp_path)
    said = play(typed(page), tmp_path, swaps, settings)

    assert not (found := differences(typed(page), said, MASKS)), "\n".join(found)


@pytest.mark.slow
def test_what_make_run_shows_is_what_the_readme_shows(tmp_path: Path) -> None:
    [block] = [block for block in blocks(readme()) if block[0].typed == SHOW]
    assert "run: .venv/run/.ready" in (makefile := (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert "@$(RUN) -m holdfast demo\n" in makefile

    said = play([block], tmp_path, {SHOW: "holdfast demo"})

    assert not (found := differences([block], said, MASKS)), "\n".join(found)


def test_every_command_of_the_readme_is_run_by_some_test() -> None:
    page = readme()
    fences = re.findall(r"^```[^\n]*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)

    first = {found[1] for body in fences if (found := re.search(r"^\$ (.*)", body, re.MULTILINE))}

    run = {block[0].typed.partition("\n")[0] for block in typed(page)}
    assert first == {SHOW, *ELSEWHERE, *run}
    assert all((ROOT / place).exists() for place in ELSEWHERE.values())
    assert "README.md" in (ROOT / "tests" / "test_examples.py").read_text(encoding="utf-8")


def test_what_make_zombie_shows_has_the_words_of_the_program() -> None:
    [shown] = re.findall(r"^```\n( +takes every write.*?)^```", readme(), re.DOTALL | re.MULTILINE)
    program = (ROOT / "verify" / "zombie.py").read_text(encoding="utf-8")

    for line in shown.splitlines():
        for words in re.findall(r"[a-z](?:[a-z,'] ?)+", line.partition(":")[0]):
            assert words.strip() in program


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text, (known, given) = readme(), here()
        write(text, Path(place))
        parts = typed(text)
        answers = iter(play(parts, Path(place), known, given))
        whole = [
            next(answers) if block in parts else list(command.shown)
            for block in blocks(text)
            for command in block
        ]
        PAGE.write_text(refreshed(text, whole), encoding="utf-8")
