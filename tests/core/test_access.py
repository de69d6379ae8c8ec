"""Access: who reaches what, and who may make a key for whom."""

import re
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.access import ANONYMOUS, Key, Principal, Scope, may_grant
from holdfast.testing.fakes import EPOCH

KEY = Key(
    key_id="0123456789ab",
    name="reports",
    digest="5f" * 32,
    scopes=(Scope.SUBMIT,),
    created_at=EPOCH,
    expires_at=EPOCH + timedelta(days=30),
    created_by="user:ana",
)


def somebody(*queues: str, scopes: tuple[Scope, ...] = (), regions: tuple[str, ...] = ()) -> Principal:
    return Principal("ana", frozenset(scopes), queues or ("*",), regions)


MATCHES = [
    ("*", "a", True),
    ("a", "a", True),
    ("a", "ab", False),
    ("a", "A", False),
    ("a*", "a", True),
    ("a*", "ab", True),
    ("a*", "ba", False),
    ("*a", "ba", True),
    ("*a", "ab", False),
    ("a*a", "aa", True),
    ("a*a", "a", False),
    ("ab*ba", "aba", False),
    ("a*b*c", "a-b-c", True),
    ("a*b*c", "abc", True),
    ("a*b*c", "ac", False),
    ("a*b*b", "ab", False),
    ("a*b*b", "abb", True),
    ("*bc*c", "bcc", True),
    ("*ab*b", "ab", False),
    ("*ab*ab*", "xabab", True),
    ("*ab*ba*", "xaba", False),
    ("**", "a", True),
    (".*", "ab", False),
    ("a.b", "axb", False),
]


@pytest.mark.parametrize(("glob", "queue", "reached"), MATCHES)
def test_a_glob_matches_with_stars_alone(glob: str, queue: str, reached: bool) -> None:
    assert somebody(glob).reaches(queue, None) is reached


letters = st.text("ab", max_size=6)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(glob=st.text("ab*", min_size=1, max_size=6), queue=letters)
def test_a_glob_matches_what_the_regular_expression_of_it_does(glob: str, queue: str) -> None:
    assert somebody(glob).reaches(queue, None) is bool(re.fullmatch(glob.replace("*", ".*"), queue))


def test_a_glob_of_many_stars_is_decided_at_once() -> None:
    assert not somebody("a*" * 64).reaches("a" * 63 + "b" * 65, None)


def test_any_of_the_queues_will_do_but_region_and_queue_must_both_be_in_reach() -> None:
    who = somebody("mail", "reports-*", regions=("eu", "us"))

    assert who.reaches("mail", "eu")
    assert who.reaches("reports-1", "us")
    assert who.reaches("mail", None)
    assert not who.reaches("mail", "asia")
    assert not who.reaches("other", "eu")
    assert somebody("mail").reaches("mail", "asia")


def test_everywhere_is_every_queue_and_every_region() -> None:
    assert ANONYMOUS.everywhere
    assert somebody("mail", "*").everywhere
    assert not somebody("mail*").everywhere
    assert not somebody("*", regions=("eu",)).everywhere


def test_anyone_may_do_everything_and_has_a_name() -> None:
    assert all(ANONYMOUS.may(scope, "any", "where") for scope in Scope)
    assert (ANONYMOUS.actor, ANONYMOUS.key_id) == ("user:anonymous", None)


@pytest.mark.parametrize("held", Scope)
@pytest.mark.parametrize("asked", Scope)
def test_no_scope_implies_another_but_admin_may_read(held: Scope, asked: Scope) -> None:
    reads = held is Scope.ADMIN and asked in {Scope.OBSERVE, Scope.DATA}

    assert somebody(scopes=(held,)).may(asked, "q", None) is (held is asked or reads)


def test_who_has_the_scope_may_use_it_within_reach_only() -> None:
    who = somebody("mail", scopes=(Scope.SUBMIT,), regions=("eu",))

    assert who.may(Scope.SUBMIT, "mail", "eu")
    assert not who.may(Scope.SUBMIT, "other", "eu")
    assert not who.may(Scope.SUBMIT, "mail", "us")
    assert not who.may(Scope.WORK, "mail", "eu")


def test_nobody_without_a_scope_may_do_anything() -> None:
    assert not any(somebody().may(scope, "q", None) for scope in Scope)


REACH = [
    (("*",), ("anything",), True),
    (("*",), ("*",), True),
    (("a*b",), ("a*b",), True),
    (("a*",), ("abc",), True),
    (("a*",), ("a*",), True),
    (("a*",), ("ab*",), True),
    (("a*",), ("a*c*",), True),
    (("a*b",), ("axb",), True),
    (("a", "b*"), ("a", "bc", "b*"), True),
    (("a",), ("a", "b"), False),
    (("a",), ("a*",), False),
    (("a",), ("ab*",), False),
    (("ab*",), ("a*",), False),
    (("a*",), ("*",), False),
    (("a*",), ("*a",), False),
    (("a*b*",), ("a*b*c",), False),
    (("*a",), ("b*a",), False),
]


@pytest.mark.parametrize(("mine", "asked", "inside"), REACH)
def test_a_key_reaches_no_further_than_who_makes_it(
    mine: tuple[str, ...], asked: tuple[str, ...], inside: bool
) -> None:
    maker = somebody(*mine, scopes=(Scope.SUBMIT,))

    assert may_grant(maker, replace(KEY, queues=asked)) is inside


@settings(deadline=None, derandomize=True, max_examples=500)
@given(
    mine=st.text("ab*", min_size=1, max_size=4),
    asked=st.text("ab*", min_size=1, max_size=4),
    queue=letters,
)
def test_what_a_key_within_reach_reaches_its_maker_does(mine: str, asked: str, queue: str) -> None:
    maker = somebody(mine, scopes=(Scope.SUBMIT,))
    key = replace(KEY, queues=(asked,))

    if may_grant(maker, key) and key.principal.reaches(queue, None):
        assert maker.reaches(queue, None)


@pytest.mark.parametrize(
    ("mine", "asked", "inside"),
    [
        ((), (), True),
        ((), ("eu",), True),
        (("eu", "us"), ("us",), True),
        (("eu",), ("eu",), True),
        (("eu",), (), False),
        (("eu",), ("eu", "us"), False),
    ],
)
def test_a_key_is_for_no_region_its_maker_is_not_for(
    mine: tuple[str, ...], asked: tuple[str, ...], inside: bool
) -> None:
    maker = somebody(scopes=(Scope.SUBMIT,), regions=mine)

    assert may_grant(maker, replace(KEY, regions=asked)) is inside


@pytest.mark.parametrize(
    ("mine", "asked", "inside"),
    [
        ((Scope.SUBMIT, Scope.WORK), (Scope.WORK,), True),
        ((Scope.SUBMIT,), (Scope.SUBMIT, Scope.WORK), False),
        ((Scope.ADMIN,), (Scope.OBSERVE, Scope.DATA, Scope.ADMIN), True),
        ((Scope.ADMIN,), (Scope.KEYS,), False),
        ((Scope.KEYS,), (Scope.ADMIN,), False),
    ],
)
def test_a_key_allows_nothing_its_maker_may_not_do(
    mine: tuple[Scope, ...], asked: tuple[Scope, ...], inside: bool
) -> None:
    assert may_grant(somebody(scopes=mine), replace(KEY, scopes=asked)) is inside


def test_a_reach_that_is_in_the_log_is_the_same_in_every_version_of_holdfast() -> None:
    queues, regions = ("mail", "a*", "reports", "b-*", "c"), ("us", "eu", "asia", "africa")

    there = "8da58d8cd1c1913ee48c1657a6d60374"
    assert somebody(*queues, regions=regions).reach == there
    assert somebody(*reversed(queues), regions=regions[::-1]).reach == there


def test_keys_that_reach_the_same_have_the_same_reach() -> None:
    assert somebody().reach == ""
    assert somebody("a", "b").reach == somebody("b", "a", "b").reach
    assert len({somebody(*q, regions=r).reach for q in (("a",), ("b",)) for r in ((), ("eu",))}) == 4
