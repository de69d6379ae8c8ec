"""Sealed cursors: only what we sealed for a holder is unsealed for it, and nobody else learns from it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.cursor import seal, unseal
from holdfast.core.errors import Invalid

KEY, NONCE = b"k" * 32, b"n" * 32


@settings(deadline=None, derandomize=True)
@given(
    cursor=st.from_regex(r"[A-Za-z0-9._:=-]{1,180}", fullmatch=True),
    key=st.binary(min_size=32, max_size=32),
    nonce=st.binary(min_size=32, max_size=32),
)
def test_a_sealed_cursor_comes_back(cursor: str, key: bytes, nonce: bytes) -> None:
    text = seal(key, cursor, holder="key:ana/jobs", nonce=nonce)

    assert unseal(key, text, holder="key:ana/jobs") == cursor
    assert "=" not in text


def test_two_of_one_place_have_nothing_in_common_and_are_as_long_as_those_of_another() -> None:
    one = seal(KEY, "1.7", holder="a", nonce=NONCE)
    again = seal(KEY, "1.7", holder="a", nonce=b"m" * 32)
    later = seal(KEY, "1.7000000", holder="a", nonce=NONCE)

    assert one != again
    assert len(one) == len(again) == len(later)


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "",
        "é",
        "A" * 1000,
        seal(KEY, "7", holder="b", nonce=NONCE),
        seal(b"j" * 32, "7", holder="a", nonce=NONCE),
        seal(KEY, "7", holder="a", nonce=NONCE)[:-4] + "AAAA",
    ],
)
def test_what_was_not_sealed_for_a_holder_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a cursor of this key"):
        unseal(KEY, text, holder="a")
