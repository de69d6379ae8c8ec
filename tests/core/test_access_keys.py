"""API keys: which text is one, for how long, and what no key can be."""

import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.access import (
    Key,
    Principal,
    Scope,
    check_key,
    key_accepts,
    key_id_of,
    new_key,
    scope_of,
)
from holdfast.core.errors import Invalid
from holdfast.core.limits import KEY_LIFE_MAX
from holdfast.testing.fakes import EPOCH

LATER = EPOCH + timedelta(days=30)
MOMENT = timedelta(microseconds=1)
SECRET = bytes(range(32))


def made(**more: object) -> tuple[Key, str]:
    asked: dict[str, object] = {
        "name": "reports",
        "scopes": ["submit"],
        "life": timedelta(days=30),
        "now": EPOCH,
        "created_by": "user:ana",
    }
    return new_key(bytes(range(160, 192)), SECRET, **{**asked, **more})  # type: ignore[arg-type]


KEY, TEXT = made()


def test_a_key_says_what_was_asked_for_and_its_text_has_the_id_and_the_secret() -> None:
    key, text = made(
        scopes=["work", Scope.SUBMIT, "work"], queues=["b", "a*", "b"], regions=["eu", "us", "eu"]
    )

    assert text == "hf_a0a1a2a3a4a5_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert key == Key(
        key_id="a0a1a2a3a4a5",
        name="reports",
        digest="218f674b539fcd621b3fcb02683b66c0e338b99793080d1c327d7716fda834f4",
        scopes=(Scope.WORK, Scope.SUBMIT),
        queues=("b", "a*"),
        regions=("eu", "us"),
        created_at=EPOCH,
        expires_at=LATER,
        created_by="user:ana",
    )


def test_a_key_reaches_everything_unless_said_otherwise() -> None:
    fields = {name: getattr(KEY, name) for name in Key.__struct_fields__}
    for name in ("queues", "regions", "revoked_at"):
        del fields[name]

    assert Key(**fields) == KEY
    assert (KEY.queues, KEY.regions, KEY.revoked_at) == (("*",), (), None)


def test_the_secret_is_in_the_text_and_nowhere_in_the_key() -> None:
    assert TEXT.split("_", 2)[2] not in repr(KEY)
    assert SECRET.hex() not in repr(KEY)


def test_a_key_is_the_principal_it_was_made_for() -> None:
    key, _ = made(scopes=["work", "observe"], queues=["a"], regions=["eu"])
    scopes = frozenset({Scope.WORK, Scope.OBSERVE})

    assert key.principal == Principal("reports", scopes, ("a",), ("eu",), key.key_id)
    assert key.principal.actor == "user:reports"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hf_",
        TEXT[:-1],
        TEXT + "A",
        TEXT + "\n",
        " " + TEXT,
        TEXT.upper(),
        TEXT.replace("hf_", "hg_"),
        TEXT.replace("a0a1", "g0a1"),
        TEXT.replace("a0a1", "٣0a1"),
        TEXT[:-1] + "=",
        TEXT[:-1] + "\ud800",
    ],
)
def test_what_is_no_key_has_no_id(text: str) -> None:
    assert key_id_of(text) is None


@settings(deadline=None, derandomize=True)
@given(chance=st.binary(min_size=6, max_size=40), secret=st.binary(min_size=32, max_size=32))
def test_every_key_that_is_made_is_known_by_its_text(chance: bytes, secret: bytes) -> None:
    key, text = new_key(
        chance,
        secret,
        name="n",
        scopes=["work"],
        life=timedelta(days=1),
        now=EPOCH,
        created_by="user:ana",
    )

    assert key_id_of(text) == key.key_id == chance[:6].hex()
    assert key_accepts(key, text, EPOCH)
    assert not key_accepts(KEY, text, EPOCH)


def test_a_key_counts_from_its_making_until_the_moment_it_expires() -> None:
    assert key_accepts(KEY, TEXT, EPOCH)
    assert key_accepts(KEY, TEXT, LATER - MOMENT)
    assert not key_accepts(KEY, TEXT, LATER)


def test_a_revoked_key_counts_no_more_whenever_that_was() -> None:
    assert not key_accepts(replace(KEY, revoked_at=EPOCH), TEXT, EPOCH)
    assert not key_accepts(replace(KEY, revoked_at=LATER), TEXT, EPOCH)


@pytest.mark.parametrize("text", ["", TEXT[:-1], TEXT + " ", TEXT.lower(), "\ud800", "ключ"])
def test_no_other_text_is_the_key(text: str) -> None:
    assert not key_accepts(KEY, text, EPOCH)


def test_the_digest_itself_is_no_key() -> None:
    assert not key_accepts(KEY, KEY.digest, EPOCH)
    assert not key_accepts(replace(KEY, digest="ключ"), TEXT, EPOCH)


@pytest.mark.parametrize("scope", Scope)
def test_every_scope_is_known_by_its_name(scope: Scope) -> None:
    assert scope_of(str(scope)) is scope


def test_an_unknown_scope_is_told_with_those_there_are() -> None:
    words = "'root' is not a scope. There are: submit, work, observe, observe:data, admin, admin:keys."
    with pytest.raises(Invalid, match=f"^{re.escape(words)}$"):
        scope_of("root")
    with pytest.raises(Invalid) as told:
        scope_of("x" * 5000)
    assert len(told.value.message) < 200


NAIVE = datetime(2026, 1, 1)
WRONG: list[tuple[dict[str, object], str]] = [
    ({"name": ""}, "^The name of a key is empty"),
    ({"name": "a b"}, "may only contain"),
    ({"name": "n" * 121}, "at most 120 characters"),
    ({"key_id": "A" * 12}, "an id of 12"),
    ({"key_id": "a" * 11}, "an id of 12"),
    ({"digest": "a" * 63}, "a digest of 64"),
    ({"digest": TEXT}, "a digest of 64"),
    ({"scopes": ()}, "may do nothing: name at least one of submit, work"),
    ({"queues": ()}, "reaches no queue"),
    ({"queues": ("a",) * 65}, "at most 64 queues, not 65"),
    ({"queues": ("",)}, "'' names no queues"),
    ({"queues": ("ok", "a?")}, "'a\\?' names no queues"),
    ({"queues": ("a[bc]",)}, "names no queues"),
    ({"queues": ("a/b",)}, "names no queues"),
    ({"queues": ("a\n",)}, "names no queues"),
    ({"queues": ("q" * 129,)}, "names no queues"),
    ({"regions": ("r",) * 65}, "at most 64 regions, not 65"),
    ({"regions": ("eu", "")}, "^A region is empty"),
    ({"regions": ("eu*",)}, "A region 'eu\\*'"),
    ({"created_by": "ana"}, "needs a kind and a name"),
    ({"created_at": NAIVE}, "need a time zone"),
    ({"expires_at": NAIVE}, "need a time zone"),
    ({"expires_at": EPOCH}, "366 days at most, not 0:00:00"),
    ({"expires_at": EPOCH - MOMENT}, "A key lasts"),
    ({"expires_at": EPOCH + KEY_LIFE_MAX + MOMENT}, "A key lasts"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_what_no_key_can_be_is_invalid(changes: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_key(replace(KEY, **changes))


def test_what_is_long_is_not_repeated_in_full() -> None:
    with pytest.raises(Invalid) as told:
        check_key(replace(KEY, queues=("?" * 5000,)))

    assert len(told.value.message) < 250


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "n" * 120},
        {"queues": tuple(f"q{n}" for n in range(64)), "regions": tuple(map(str, range(64)))},
        {"queues": ("*", "a*b**c", "q" * 128)},
        {"expires_at": EPOCH + MOMENT},
        {"expires_at": EPOCH + KEY_LIFE_MAX},
        {"scopes": tuple(Scope)},
    ],
)
def test_the_largest_and_the_smallest_that_a_key_can_be(changes: dict[str, object]) -> None:
    key = replace(KEY, **changes)

    assert check_key(key) is key


@pytest.mark.parametrize("life", [timedelta(), -MOMENT, KEY_LIFE_MAX + MOMENT, timedelta.max])
def test_a_life_that_no_key_has_is_invalid(life: timedelta) -> None:
    with pytest.raises(Invalid, match="A key lasts"):
        made(life=life)


def test_a_new_key_is_checked() -> None:
    with pytest.raises(Invalid, match="reaches no queue"):
        made(queues=[])
