"""A terminal gets text, line ends, tabs and colours of what a job writes, and nothing else."""

import json
import re
import tracemalloc
import unicodedata
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.cli.terminal_escape import Cleaner, json_text, plain

ALLOWED = re.compile(r"\x1b\[[0-9;:]{0,64}m|[\n\t]")
BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
PIECES = st.sampled_from(
    [
        b"\x1b",
        b"[",
        b"]",
        b"P",
        b"\\",
        b"\x07",
        b"\x9b",
        "\x9b".encode(),
        "\x9d".encode(),
        "\x9c".encode(),
        b"0;31",
        b"m",
        b">4;1m",
        b"\r",
        b"\n",
        b"\t",
        b"(0",
        b"text",
        "é€😀".encode(),
        "\u202e".encode(),
        b"\xff",
        b"\xe2\x82",
        b"\x18",
    ]
)
HOSTILE = st.lists(st.one_of(PIECES, st.binary(max_size=6)), max_size=30).map(b"".join)


def clean(*pieces: bytes, colours: bool = True) -> str:
    cleaner = Cleaner(colours=colours)
    return "".join(map(cleaner.feed, pieces)) + cleaner.finish()


@given(HOSTILE)
@example(b"\x1b[31")
@example(b"\x1b]0;title")
@example("\u202eevil".encode())
def test_nothing_but_text_line_ends_tabs_and_colours_comes_out(data: bytes) -> None:
    rest = ALLOWED.sub("", clean(data))

    assert not [c for c in rest if unicodedata.category(c) == "Cc"]
    assert not BIDI & set(rest)


@given(HOSTILE, st.lists(st.integers(0, 60), max_size=8))
def test_how_the_bytes_are_cut_changes_nothing(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]

    assert clean(*pieces) == clean(data) == clean(*(bytes([byte]) for byte in data))


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Cf"]), max_size=50))
def test_plain_text_comes_out_as_it_went_in(text: str) -> None:
    assert clean(text.encode()) == text


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        (b"\x1b[38:2::1:2:3mx\x1b[m", "\x1b[38:2::1:2:3mx\x1b[m"),
        (b"a\x1b[2Jb\x1b[1;1Hc\x1b[?25ld", "abcd"),
        (b"a\x1b[>4;2mb\x1b[?4mc\x1b[0 md", "abcd"),
        (b"a\x1b]0;title\x07b\x1b]2;title\x1b\\c", "abc"),
        (b"\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b]52;c;ZXZpbA==\x07x", "x"),
        (b"a\x1bP1$r0m\x1b\\b\x1b_apc\x1b\\c\x1b^pm\x1b\\d\x1bXsos\x1b\\e", "abcde"),
        ("a\x9b2Jb\x9d0;title\x9cc\x90dcs\x9cd\x85e".encode(), "abcde"),
        (b"a\x1b(0b\x1bcd\x1b#8e\x1b7f", "abdef"),
        (b"nul\x00 bell\x07 back\x08 del\x7f so\x0e", "nul bell back del so"),
        (b"10%\r20%\r\n30%\n", "10%\n20%\n30%\n"),
        (b"end\r", "end\n"),
        (b"abc\xff\xc3", "abc\ufffd\ufffd"),
        ("user\u202etxt.exe\u2066".encode(), "usertxt.exe"),
        (b"\x1b]0;never ends\nnext line", "\nnext line"),
        (b"\x1b]0;a\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        (b"\x1b[3\n1m", "\n1m"),
        (b"left on \x1b[31mred", "left on \x1b[31mred\x1b[0m"),
        (b"\x1b[" + b"1;" * 50 + b"mx", "x"),
        (b"lone \x1b", "lone "),
        (b"tab\tstays", "tab\tstays"),
    ],
)
def test_each_trick_is_taken_out(data: bytes, seen: str) -> None:
    assert clean(data) == seen


def test_without_colours_not_even_those_come_out() -> None:
    assert clean(b"\x1b[31mred\x1b[0m", colours=False) == "red"


@pytest.mark.parametrize("start", [b"", b"\x1b]0;", b"\x1b["])
def test_a_hundred_megabytes_without_a_line_end_take_no_memory(start: bytes) -> None:
    cleaner, piece, seen = Cleaner(), b"1" * 65_536, 0
    cleaner.feed(start)
    tracemalloc.start()

    for _ in range(1600):
        seen += len(cleaner.feed(piece))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 2_000_000
    assert seen == (0 if start else 1600 * 65_536)


@given(st.text(max_size=40))
def test_a_cell_is_one_line_without_controls(text: str) -> None:
    shown = plain(text)

    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Zl", "Zp"}]
    assert not BIDI & set(shown)


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=40))
def test_json_says_the_same_and_holds_nothing_a_terminal_acts_on(text: str) -> None:
    shown = json_text(msgspec.json.encode({"text": text}))

    assert json.loads(shown) == {"text": text}
    assert not [c for c in shown if unicodedata.category(c) == "Cc"]
    assert not BIDI & set(shown)
