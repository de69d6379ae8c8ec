"""Secrets are masked however the output is cut."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.executor import Ending
from holdfast.worker.redaction import Redactor


def masked(secrets: list[str], chunks: list[bytes], *, terminal: bool = False) -> bytes:
    redactor = Redactor(secrets, terminal=terminal).copy()
    return b"".join(map(redactor.feed, chunks)) + redactor.flush()


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert masked(["abcd", "abcdefgh"], [b"see abcd", b"efgh end"]) == b"see *** end"


def test_a_secret_that_ends_in_the_beginning_of_another_is_masked() -> None:
    assert masked(["xyab", "abcd"], [b"= xyab", b"zz"]) == b"= ***zz"


def test_short_secrets_do_not_blot_out_ordinary_text() -> None:
    assert masked(["a"], [b"banana"]) == b"banana"


def test_a_secret_that_is_no_text_is_masked_all_the_same() -> None:
    assert masked(["pass\udcffword"], [b"<pass\xff", b"word>"]) == b"<***>"


def test_a_secret_of_two_lines_is_masked_as_a_terminal_writes_it() -> None:
    chunks = [b"<first\r", b"\nsecond> <first\nsecond>"]

    assert masked(["first\nsecond"], chunks, terminal=True) == b"<***> <***>"
    assert masked(["first\nsecond"], chunks) == b"<first\r\nsecond> <***>"


@given(
    st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=3),
    st.lists(st.text("ab ", max_size=5), max_size=12),
)
def test_no_secret_survives_whatever_the_chunks(secrets: list[str], chunks: list[str]) -> None:
    out = masked(secrets, [chunk.encode() for chunk in chunks])

    assert not any(secret.encode() in out for secret in secrets)


@given(
    st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=3),
    st.lists(st.integers(min_value=0, max_value=5), min_size=3, max_size=12),
    st.integers(min_value=0, max_value=40),
    st.integers(min_value=0, max_value=40),
)
def test_no_part_of_a_secret_is_left_where_a_text_was_cut(
    secrets: list[str], order: list[int], head: int, tail: int
) -> None:
    mark = "\n  … [1,234 characters left out]\n"
    text = ".".join([secrets[n % len(secrets)] if n else "" for n in order])
    head = min(head, len(text))

    shown = Redactor(secrets).text(f"{text[:head]}{mark}{text[max(head, len(text) - tail) :]}")

    assert mark in shown
    assert set(shown.replace(mark, "")) <= set(".*")


def test_a_secret_at_the_end_of_a_shortened_message_is_masked() -> None:
    assert Redactor(["hf_secret"]).text("refused hf_sec … [shortened]") == "refused  … [shortened]"
    assert Redactor(["hf_secret"]).text("refused hf_sec") == "refused hf_sec"


def test_why_a_job_snoozes_is_told_without_secrets() -> None:
    ending = Ending(snooze=timedelta(seconds=1), reason="hf_secret is refused")

    assert ending.redacted(Redactor(["hf_secret"])).reason == "*** is refused"
