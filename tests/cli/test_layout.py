"""How tables and sentences fit a terminal of 80 columns, and of 140."""

import re

import pytest

from holdfast.cli.layout import Column, cut, fit, text_width, wrap
from holdfast.cli.terminal import facts_text
from holdfast.core.short_ids import short_id
from tests.cli.command_line import CommandLine, failure, on_a_terminal, output

COLUMNS = (
    Column("JOB"),
    Column("AGE", rank=1),
    Column("QUEUE", rank=2, least=5),
    Column("COMMAND", least=10),
    Column("REASON"),
)
WHY = "KeyError: the column amount is in none of the 31 files that were read before the work was given up"
LONG = ("job-1", "12m", "default", "python train.py --seed 7 --alpha 0.3 --out model.pt", WHY)
SHORT = ("job-2", "1m", "default", "true", "-")
MESSAGE = "KeyError: 'b' was not found in the input of today after three tries, so nothing could be read"


def shown(width: int | None, *rows: tuple[str, ...]) -> list[str]:
    layout = fit(COLUMNS, rows, width)
    table = [tuple(column.name for column in COLUMNS), *rows]
    return ["  ".join(line).rstrip() for row in table for line in layout.lines(row)]


def test_a_pipe_gets_everything_in_one_line() -> None:
    assert shown(None, LONG)[1] == "  ".join(LONG)


def test_what_fits_is_shown_whole() -> None:
    assert shown(200, LONG)[1] == "  ".join(LONG)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal_and_no_word_of_the_reason_is_lost(width: int) -> None:
    lines = shown(width, LONG, SHORT)

    assert max(len(line) for line in lines) <= width
    assert [word for word in WHY.split() if word not in " ".join(lines).split()] == []


def test_the_least_important_column_is_the_first_to_go() -> None:
    headers = [shown(width, LONG)[0].split() for width in (80, 54, 46)]

    assert headers[0] == ["JOB", "AGE", "QUEUE", "COMMAND", "REASON"]
    assert headers[1] == ["JOB", "AGE", "COMMAND", "REASON"]
    assert headers[2] == ["JOB", "COMMAND", "REASON"]


def test_the_last_column_is_beneath_its_row_where_it_would_be_too_narrow() -> None:
    lines = shown(40, ("j" * 24, *LONG[1:]), SHORT)

    assert lines[0].split() == ["JOB", "COMMAND"]
    assert lines[1:4] == [
        "    REASON",
        "j" * 24 + "  python train.…",
        "    KeyError: the column amount is in",
    ]
    assert lines[-1].split() == ["job-2", "true"]


def test_a_word_longer_than_the_last_column_moves_it_beneath() -> None:
    path = "/srv/data/2026/11/19/the-file-that-was-not-there.csv"
    lines = shown(60, (*LONG[:4], f"no {path}"))

    assert lines[-1] == f"    no {path}"


def test_a_word_too_long_for_a_layout_made_before_moves_only_its_own_row() -> None:
    layout = fit(COLUMNS, [LONG], 80)
    lines = layout.lines((*LONG[:4], "x" * 60))

    assert lines[1] == ["    " + "x" * 60]
    assert len(layout.lines(SHORT)) == 1


def test_a_last_column_of_some_rank_may_be_left_out() -> None:
    columns = (Column("NAME"), Column("NOTE", rank=1))
    rows = [("n" * 20, WHY)]
    layout = fit(columns, rows, 30)

    assert layout.lines(rows[0]) == [["n" * 20]]


def test_wide_characters_count_twice_and_colours_not_at_all() -> None:
    assert (text_width("完成"), text_width("\x1b[32m✔\x1b[0m")) == (4, 1)
    assert cut("完成完成", 5) == "完成…"
    assert cut("完成完成", 4) == "完…"
    assert wrap("完成 完成 完成", 9) == ["完成 完成", "完成"]


def test_lines_are_broken_between_words_and_indented() -> None:
    assert wrap("one two three four", 10, indent=2) == ["one two", "  three", "  four"]
    assert wrap("one two\nthree", 10) == ["one two", "three"]
    assert wrap("x" * 20 + " two", 10) == ["x" * 20, "two"]
    assert wrap("one two three", None) == ["one two three"]


def test_a_command_to_be_typed_is_not_broken() -> None:
    text = "It has ended. To run it again: holdfast replay job-1"

    assert wrap(text, 40) == ["It has ended. To run it again:", "holdfast replay job-1"]
    assert wrap("See: holdfast replay job-1", 12) == ["See:", "holdfast", "replay job-1"]


# As it is typed.


def lines_at(cli: CommandLine, width: int, *arguments: str, typed: bytes = b"") -> list[str]:
    """What a terminal of this width shows; no line may be wider, unless a single word is, such as a path."""
    _, seen = on_a_terminal(cli, *arguments, typed=typed, COLUMNS=str(width), NO_COLOR="1")
    lines = re.sub("\r|\x1b\\[[0-9;]*m", "", seen).rstrip("\n").split("\n")
    assert all(len(line) <= width or " " not in line.strip() for line in lines), seen
    return lines


def words(lines: list[str]) -> list[str]:
    return " ".join(lines).split()


@pytest.mark.parametrize("width", [80, 140])
def test_lists_show_the_whole_error_at_any_width(cli: CommandLine, width: int) -> None:
    job_id = cli.dead_letter(MESSAGE)

    listed = lines_at(cli, width, "list")
    letters = lines_at(cli, width, "dead-letters", "list")

    for lines in (listed, letters):
        assert {short_id(job_id), "JOB", "COMMAND", *MESSAGE.split()} <= {*words(lines)}
    assert ("OWNER" in words(listed)) is (width == 140)


@pytest.mark.parametrize("width", [80, 140])
def test_events_are_told_at_any_width(cli: CommandLine, width: int) -> None:
    job_id = cli.submit("--on-exhausted", "dead_letter")
    cli.finish(job_id, failure(MESSAGE), output(1, b"x"))

    of_one, of_all = (lines_at(cli, width, "events", *job) for job in ([job_id], []))

    for lines in (of_one, of_all):
        assert {"job_claimed", "job_dead_lettered", *MESSAGE.split()} <= {*words(lines)}
        assert lines[0].startswith("── ") is (width == 80)  # the day has a line of its own
    assert short_id(job_id) in words(of_all)


def test_why_breaks_at_words_and_leaves_its_command_whole(cli: CommandLine) -> None:
    job_id = cli.dead_letter(MESSAGE)

    lines = lines_at(cli, 80, "why", job_id)

    assert words(lines) == cli.run("why", job_id).stdout.split()
    assert lines[-1] == f"holdfast dead-letters replay {job_id}"


def test_hints_questions_and_errors_break_at_words(cli: CommandLine) -> None:
    queue = "a-queue-whose-name-is-rather-long-for-a-terminal"
    hints = lines_at(cli, 80, "submit", "-q", queue, "--", "true")
    assert any(line.endswith(f"holdfast worker -q {queue}") for line in hints)

    cli.finish(cli.submit())
    asked = ("prune", "--older-than", "0s", "--output-older-than", "7d")
    assert "[y/N]:" in words(lines_at(cli, 80, *asked, typed=b"n\n"))
    lines_at(cli, 80, "status", "no-job-of-this-name-was-ever-queued-in-this-store-by-anybody")


def test_worker_lines_break_at_words_after_the_time(cli: CommandLine) -> None:
    cli.submit("--name", "a name that is rather long", command=("sh", "-c", "exit 3"))

    lines = lines_at(cli, 80, "worker", "--drain", "--name", "w1", "--spool", f"{cli.file}.spool")

    assert all(re.match(r"\d\d:\d\d:\d\d \S|         \S", line) for line in lines), lines
    assert "The command exited with 3." in " ".join(words(lines))


def test_of_a_fact_on_a_terminal_only_the_name_is_dim() -> None:
    text = facts_text([("Job", "1234"), ("State", "failed")])

    assert [(text.plain[span.start : span.end].strip(), span.style) for span in text.spans] == [
        ("Job", "dim"),
        ("State", "dim"),
        ("failed", "red"),
    ]
    assert text.style == ""
