"""The tutorial, typed and run from top to bottom as a newcomer would.

`python tests/test_tutorial.py` writes what was really said into the page.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from msgspec import Struct

import holdfast
from postgres_world import fresh_url

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
SERVER = "postgresql://ana@db.example.org/jobs"
PATIENCE_SECONDS = 120.0
_BLOCK = re.compile(r"^ *```(python|console) ?(\S*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_MARK = "=== command {} ==="
_MASKS = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"^\d\d:\d\d:\d\d ", "TIME "),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"\b\d+(\.\d+)? (ms|s|min)\b", "DURATION"),
    (r"\S+-\d+ (runs|left|is asked)", r"WORKER \1"),
    (r"worker:\S+-\d+", "WORKER"),
    (r"by user:\w+", "by USER"),
    (r"(row|Progress) +\d+", r"\1 N"),
    (r"postgresql://[^ ,]+", "SERVER"),
    (r" +", " "),
    (r"-{2,}", "-"),
)


class Command(Struct, frozen=True):
    """A line after a prompt, and what the page says comes of it."""

    typed: str
    shown: tuple[str, ...]


def files(page: str) -> dict[str, str]:
    """The files the page asks for; what is added to one comes after two empty lines."""
    made: dict[str, str] = {}
    for _, name, text in _BLOCK.findall(page):
        body = textwrap.dedent(text)
        if name:
            made[name] = f"{made[name]}\n\n{body}" if name in made else body
    return made


def commands(page: str) -> list[Command]:
    found: list[Command] = []
    for language, _, body in _BLOCK.findall(page):
        if language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                typed, *shown = part.rstrip("\n").split("\n")
                found.append(Command(typed, tuple(shown)))
    return found


def play(page: str, folder: Path, server: str) -> list[list[str]]:
    """Type every command in one shell, and return the lines that each one was answered with."""
    typed = [command.typed.replace(SERVER, server) for command in commands(page)]
    script = "".join(
        f"echo '{_MARK.format(number)}'\n{line}\n" for number, line in enumerate(typed)
    )
    write(page, folder, server)
    with (folder / "said.txt").open("wb") as said:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(timeout=PATIENCE_SECONDS)
        finally:
            end_session(shell)
    text = (folder / "said.txt").read_text(encoding="utf-8")
    parts = re.split(rf"^{_MARK.format('[0-9]+')}\n", text, flags=re.MULTILINE)[1:]
    assert len(parts) == len(typed), text
    return [part.rstrip("\n").split("\n") if part.strip() else [] for part in parts]


def write(page: str, folder: Path, server: str) -> None:
    for name, text in files(page).items():
        (folder / name).write_text(text.replace(SERVER, server), encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_STATE_HOME": str(folder / "state"),
    }


def end_session(shell: "subprocess.Popen[bytes]") -> None:
    """Kill whatever the shell has left behind; a failed page may have left a worker."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def masked(lines: list[str], typed: str) -> list[str]:
    """The lines without what differs from run to run; those of a worker in any order."""
    plain = []
    for line in lines:
        for pattern, word in _MASKS:
            line = re.sub(pattern, word, line)  # noqa: PLW2901
        plain.append(line.strip())
    return sorted(plain) if typed.startswith("holdfast worker") else plain


@pytest.mark.slow
def test_the_tutorial_can_be_followed_to_its_end(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    server = asyncio.run(fresh_url(tmp_path))

    said = play(page, tmp_path, server)

    differences = [
        f"$ {command.typed}\nshown: {shown}\nsaid:  {heard}"
        for command, lines in zip(commands(page), said, strict=True)
        if (shown := masked(list(command.shown), command.typed))
        != (heard := masked(lines, command.typed))
    ]
    assert not differences, "\n".join(differences)


def test_the_first_app_of_the_tutorial_has_ten_lines_at_most() -> None:
    first = next(body for _, name, body in _BLOCK.findall(PAGE.read_text("utf-8")) if name)

    assert len(first.splitlines()) <= 10


@pytest.mark.slow
def test_the_code_for_those_who_come_from_elsewhere_runs(tmp_path: Path) -> None:
    store = asyncio.run(fresh_url(tmp_path))
    server = store.partition("?")[0]
    write((ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8"), tmp_path, server)
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS invoice (id bigint)")

    patience = (
        "import holdfast as h; [h.Client().wait(j.job_id) for j in h.Client().list(kind='pack')]"
    )
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
        ("pack", b'{"order":9}'),
        ("send", b'{"order":9}'),
    ]
    with holdfast.Client(store) as client:
        [made] = client.list()
    assert made.spec.kind == "send"


def type_in(line: str, folder: Path) -> str:
    """What a shell says to one line."""
    shell = subprocess.Popen(
        ["bash", "-c", line],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=PATIENCE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
    assert shell.returncode == 0, said
    return said


def refreshed(page: str, said: list[list[str]], server: str) -> str:
    """The page with what was really said below each command."""
    answers = iter(said)

    def rewritten(block: re.Match[str]) -> str:
        if block[1] != "console":
            return block[0]
        lines = ["```console"]
        for part in re.split(r"^\$ ", block[3], flags=re.MULTILINE)[1:]:
            lines += [f"$ {part.partition(chr(10))[0]}", *next(answers)]
        return "\n".join([*lines, "```"]).replace(server, SERVER)

    return _BLOCK.sub(rewritten, page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text = PAGE.read_text(encoding="utf-8")
        url = asyncio.run(fresh_url(Path(place)))
        PAGE.write_text(refreshed(text, play(text, Path(place), url), url), encoding="utf-8")
