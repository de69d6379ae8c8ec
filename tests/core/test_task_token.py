"""Task tokens: only what we sealed is unsealed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import Invalid, NotFound
from holdfast.core.task_token import SealedGrant, seal, unseal

KEY = b"k" * 32
GRANT = SealedGrant("job-1", 2, 43)
PLACED = SealedGrant("job-1", 2, 43, "reports", "eu", "worker-7")

grants = st.builds(
    SealedGrant,
    st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True),
    st.integers(1, 10**6),
    st.integers(1, 2**63),
    st.sampled_from(["default", "reports"]),
    st.sampled_from([None, "eu"]),
    st.sampled_from(["", "worker-7"]),
)


@settings(deadline=None, derandomize=True)
@given(grant=grants, key=st.binary(min_size=32, max_size=32))
def test_a_sealed_grant_comes_back_and_is_always_the_same(grant: SealedGrant, key: bytes) -> None:
    token = seal(key, grant)

    assert unseal(key, token) == grant
    assert seal(key, grant) == token
    assert "=" not in token


@settings(deadline=None, derandomize=True)
@given(place=st.integers(0, 10**6), letter=st.sampled_from("AZaz09-_"))
def test_a_token_with_another_letter_is_unknown_or_the_same_grant(place: int, letter: str) -> None:
    token = seal(KEY, GRANT)
    place %= len(token)
    forged = token[:place] + letter + token[place + 1 :]

    try:
        assert unseal(KEY, forged) == GRANT
    except NotFound:
        assert forged != token


@pytest.mark.parametrize("token", ["", "x" * 1025])
def test_an_empty_or_oversized_token_is_invalid(token: str) -> None:
    with pytest.raises(Invalid):
        unseal(KEY, token)


@pytest.mark.parametrize(
    "token", ["x", "xxxx", "not base64!", "ä", "\udcff", "A" * 512, seal(b"z" * 32, GRANT)]
)
def test_a_token_we_never_made_is_not_found(token: str) -> None:
    with pytest.raises(NotFound):
        unseal(KEY, token)


def test_a_token_given_out_once_is_known_in_every_version_of_holdfast() -> None:
    held = "vxuYswtm9risuEzSN7FSbWpvYi0xLzIvNDMvcmVwb3J0cy9ldS93b3JrZXItNw"

    assert seal(KEY, GRANT) == "snJVsonMIw4d-uGtwqOA12pvYi0xLzIvNDMvZGVmYXVsdC8v"
    assert seal(KEY, PLACED, "ana") == held
    assert unseal(KEY, held, "ana") == PLACED


@pytest.mark.parametrize("holder", ["", "bo", "an", "ana/", "Ana"])
def test_a_token_is_good_in_the_hands_of_its_holder_alone(holder: str) -> None:
    with pytest.raises(NotFound):
        unseal(KEY, seal(KEY, PLACED, "ana"), holder)


def test_a_token_of_nobody_is_not_one_of_somebody() -> None:
    with pytest.raises(NotFound):
        unseal(KEY, seal(KEY, PLACED), "ana")


def test_the_longest_ids_there_are_make_a_token_that_is_taken() -> None:
    longest = SealedGrant("j" * 128, 10**6, 2**63 - 1, "q" * 128, "r" * 128, "o" * 128)
    token = seal(KEY, longest, "h" * 128)

    assert len(token) == 746
    assert unseal(KEY, token, "h" * 128) == longest


def test_a_token_may_be_as_long_as_its_limit() -> None:
    with pytest.raises(NotFound):
        unseal(KEY, "A" * 1024)
