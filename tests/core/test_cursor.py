"""Sealed cursors: only what we sealed for a holder is unsealed for it, and nobody else learns from it."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import shake_256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import task_token
from holdfast.core.cursor import CURSOR_CHARACTERS_MAX, seal, unseal
from holdfast.core.errors import Invalid

KEY, NONCE = b"k" * 32, b"n" * 32
PLACE = "1.7"
SEALED = "cA_F6FGXWTprmKQMA_lpBG5ubm5ubm5ubm5ubi7jw9ssTnYN5bTv9Fy5ZmHuVDoN2H6vRu9KJgF87RFl"
LONG = "2026-01-01T00:00:00Z:job-000000000007"
LONG_SEALED = (
    "JjyQGh7b5qwvnfhIaZyGewABAgMEBQYHCAkKC8WOxXuMdir5_PCxAmC2-y4cDpE4QRY8qLJlMm0JRins"
    "TJwmw8EMGETqoOjsvp0DtpzJtVuhWTsdzYuMrwh8TTQ"
)


def by_hand(plain: bytes) -> str:
    """A cursor for a, as the module says that it is made, of any length."""
    nonce = b"n" * 12
    mask = shake_256(b"holdfast cursor" + KEY + nonce).digest(len(plain))
    body = nonce + bytes(a ^ b for a, b in zip(plain, mask, strict=True))
    mac = hmac.digest(KEY, b"\0cursor\0" + body + b"a", "sha256")[:16]
    return urlsafe_b64encode(mac + body).rstrip(b"=").decode()


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


@pytest.mark.parametrize("length", [0, *(32 * n + m for n in range(8) for m in (1, 31, 32))])
def test_a_cursor_of_any_number_of_blocks_comes_back_with_no_sign_to_escape(length: int) -> None:
    place = "x" * length

    text = seal(KEY, place, holder="a", nonce=NONCE)

    assert unseal(KEY, text, holder="a") == place
    assert text.replace("-", "").replace("_", "").isalnum()
    assert len(text) <= CURSOR_CHARACTERS_MAX


def test_a_cursor_given_out_once_is_known_in_every_version_of_holdfast() -> None:
    assert seal(KEY, PLACE, holder="a", nonce=NONCE) == SEALED == by_hand(b"1.7" + bytes(29))
    assert seal(KEY, LONG, holder="key:ana/jobs", nonce=bytes(range(12))) == LONG_SEALED
    assert unseal(KEY, SEALED, holder="a") == PLACE
    assert unseal(KEY, LONG_SEALED, holder="key:ana/jobs") == LONG


def test_two_of_one_place_have_nothing_in_common_and_are_as_long_as_those_of_another() -> None:
    one = seal(KEY, "1.7", holder="a", nonce=NONCE)
    again = seal(KEY, "1.7", holder="a", nonce=b"m" * 32)
    later = seal(KEY, "1.7000000", holder="a", nonce=NONCE)

    assert one != again
    assert len(one) == len(again) == len(later)


@pytest.mark.parametrize(("length", "characters"), [(0, 38), (1, 80), (32, 80), (33, 123)])
def test_a_cursor_is_as_long_as_the_blocks_it_fills(length: int, characters: int) -> None:
    assert len(seal(KEY, "x" * length, holder="a", nonce=NONCE)) == characters


def test_a_cursor_with_another_bit_anywhere_is_refused() -> None:
    raw = urlsafe_b64decode(SEALED)

    for place, byte in enumerate(raw):
        forged = raw[:place] + bytes([byte ^ 1]) + raw[place + 1 :]
        with pytest.raises(Invalid, match="not a cursor of this key"):
            unseal(KEY, urlsafe_b64encode(forged).decode(), holder="a")


def test_a_cursor_that_was_cut_short_is_refused() -> None:
    for length in range(len(SEALED)):
        with pytest.raises(Invalid, match="not a cursor of this key"):
            unseal(KEY, SEALED[:length], holder="a")


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
        task_token.seal(KEY, task_token.SealedGrant("job-1", 2, 43), "a"),
        task_token.seal(KEY, task_token.SealedGrant("job-1", 2, 43)),
    ],
)
def test_what_was_not_sealed_for_a_holder_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a cursor of this key"):
        unseal(KEY, text, holder="a")


def test_of_a_text_the_first_four_hundred_characters_are_read() -> None:
    longest = by_hand(b"x" * 272)

    assert len(longest) == 400
    assert unseal(KEY, longest, holder="a") == "x" * 272
    assert unseal(KEY, longest + "AAAA", holder="a") == "x" * 272
    with pytest.raises(Invalid):
        unseal(KEY, by_hand(b"x" * 275), holder="a")


def test_a_refused_text_is_not_repeated_at_length() -> None:
    with pytest.raises(Invalid) as refusal:
        unseal(KEY, "A" * 100_000, holder="a")

    assert f"'{'A' * 40}' is" in refusal.value.message
    assert len(refusal.value.message) < 100
