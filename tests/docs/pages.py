"""Pages of the documentation, typed and run from top to bottom as a newcomer would.

A page has blocks: files, and consoles in which a line after `$ ` is typed and the others are what comes
of it. A line `[...]` stands for any number of lines.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
ELISION = "[...]"
PATIENCE_SECONDS = 120.0
Masks: TypeAlias = tuple[tuple[str, str], ...]

_BLOCK = re.compile(r"^ *```(python|console) ?(\S*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(r"^\$ ", re.MULTILINE)
_MARK = "=== command {} ==="
_MASKS: Masks = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"^\d\d:\d\d:\d\d ", "TIME "),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"\b\d+(\.\d+)? (ms|s|min)\b", "DURATION"),
    (r"\S+-\d+ (runs|left|is asked)", r"WORKER \1"),
    (r"sqlite:////\S+/(\w+\.db)", r"sqlite:////FOLDER/\1"),
    (r"worker:\S+-\d+", "WORKER"),
    (r"by user:\w+", "by USER"),
    (r"(row|Progress) +\d+", r"\1 N"),
    (r" +", " "),
    (r"-{2,}", "-"),
)
# A mark is a line of its own, whatever came before. What runs in the background speaks when it is ready:
# `heard` waits until so many lines were said after a mark.
_FUNCTIONS = """\
mark() {
  [ -z "$(tail -c 1 "$SAID")" ] || echo
  echo "$1"
}
heard() {
  for _ in $(seq 400); do
    [ "$(sed "0,/^$1\\$/d" "$SAID" | wc -l)" -ge "$2" ] && return
    sleep 0.05
  done
}
"""


class Command(Struct, frozen=True):
    """What follows a prompt, with its continuation lines, and what the page says comes of it."""

    typed: str
    shown: tuple[str, ...]

    @property
    def elided(self) -> bool:
        return ELISION in self.shown

    @property
    def speaks_later(self) -> bool:
        """Whether it runs in the background and says something there."""
        return self.typed.endswith("&") and bool(self.shown)


Block: TypeAlias = tuple[Command, ...]


def files(page: str) -> dict[str, str]:
    """The files the page asks for; what is added to one comes after two empty lines."""
    made: dict[str, str] = {}
    for _, name, text in _BLOCK.findall(page):
        body = textwrap.dedent(text)
        if name:
            made[name] = f"{made[name]}\n\n{body}" if name in made else body
    return made


def blocks(page: str) -> list[Block]:
    """The commands of each console."""
    return [tuple(_commands(body)) for language, _, body in _BLOCK.findall(page) if language == "console"]


def commands(page: str) -> list[Command]:
    return [command for block in blocks(page) for command in block]


def _commands(body: str) -> Iterator[Command]:
    for part in _PROMPT.split(body)[1:]:
        typed, *shown = part.rstrip("\n").split("\n")
        while typed.endswith("\\"):
            typed += "\n" + shown.pop(0)
        yield Command(typed, tuple(shown))


def play(
    parts: Sequence[Block],
    folder: Path,
    swaps: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[list[str]]:
    """Type every command in one shell, and return the lines that each one was answered with. What the page
    says is replaced (`swaps`) by what is so here in commands, and the other way round in answers."""
    said = folder / "said.txt"
    with said.open("wb") as file:
        shell = subprocess.Popen(
            ["bash", "-c", _script(parts, swaps or {})],
            cwd=folder,
            env={**environment(folder), **(settings or {}), "SAID": str(said)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(timeout=PATIENCE_SECONDS)
        finally:
            end_session(shell)
    text = said.read_text(encoding="utf-8")
    for word, here in (swaps or {}).items():
        text = text.replace(here, word)
    found = re.split(rf"^{_MARK.format('[0-9]+')}\n", text, flags=re.MULTILINE)[1:]
    assert len(found) == sum(map(len, parts)), text
    return [part.rstrip("\n").split("\n") if part.strip() else [] for part in found]


def _script(parts: Sequence[Block], swaps: Mapping[str, str]) -> str:
    lines, number = [_FUNCTIONS], 0
    for block in parts:
        first, talk = number, False
        for command in block:
            typed = command.typed
            for word, here in swaps.items():
                typed = typed.replace(word, here)
            lines += [f"mark '{_MARK.format(number)}'", typed]
            if command.speaks_later:
                talk = True
                lines.append(f"heard '{_MARK.format(number)}' {len(command.shown)}")
            number += 1
        if talk:
            total = sum(len(command.shown) for command in block) + len(block) - 1
            lines.append(f"heard '{_MARK.format(first)}' {total}")
    return "\n".join(lines) + "\n"


def write(page: str, folder: Path, swaps: Mapping[str, str] | None = None) -> None:
    """Make the files that the page asks for."""
    for name, body in files(page).items():
        text = body
        for word, here in (swaps or {}).items():
            text = text.replace(word, here)
        (folder / name).write_text(text, encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """That of a newcomer, who has installed this program."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }


def end_session(shell: "subprocess.Popen[bytes]") -> None:
    """Kill whatever the shell has left behind; a failed page may have left a worker."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


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


def differences(parts: Sequence[Block], said: Sequence[Sequence[str]], masks: Masks = ()) -> list[str]:
    """Where the page does not show what was said, but for what differs from run to run (`masks`)."""
    answers = iter(said)
    found: list[str] = []
    for block in parts:
        heard = [next(answers) for _ in block]
        pairs = list(zip(block, heard, strict=True))
        if any(command.speaks_later for command in block):  # their lines come when they come
            whole = Command(
                "\n$ ".join(command.typed for command in block),
                tuple(line for command in block for line in command.shown),
            )
            pairs = [(whole, [line for lines in heard for line in lines])]
        for command, lines in pairs:
            ordered = len(pairs) == len(block) and not _UNORDERED.search(command.typed)
            shown, told = masked(command.shown, masks), masked(lines, masks)
            if not _alike(shown, told, ordered=ordered):
                found.append(f"$ {command.typed}\nshown: {shown}\nsaid:  {told}")
    return found


_UNORDERED = re.compile(r"holdfast( --\S+ \S+)* worker|^\s*(make run|holdfast demo)")


def masked(lines: Sequence[str], masks: Masks = ()) -> list[str]:
    """The lines without what differs from run to run."""
    plain = []
    for line in lines:
        for pattern, word in (*masks, *_MASKS):
            line = re.sub(pattern, word, line)  # noqa: PLW2901
        plain.append(line.strip())
    return plain


def _alike(shown: list[str], told: list[str], *, ordered: bool) -> bool:
    """Whether the lines are those that are shown; of elided ones, those that are shown are there."""
    if not ordered:
        if ELISION in shown:
            return set(shown) - {ELISION} <= set(told)
        return sorted(shown) == sorted(told)
    pattern = "".join(r"(?:[^\n]*\n)*?" if line == ELISION else re.escape(line) + "\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in told)) is not None


def refreshed(page: str, said: Sequence[Sequence[str]]) -> str:
    """The page with what was really said below each command; what is elided stays as it is."""
    answers = iter(said)

    def rewritten(block: re.Match[str]) -> str:
        if block[1] != "console":
            return block[0]
        lines = ["```console"]
        for command in _commands(block[3]):
            answer = next(answers)
            lines += [f"$ {command.typed}", *(command.shown if command.elided else answer)]
        return "\n".join([*lines, "```"])

    return _BLOCK.sub(rewritten, page)
