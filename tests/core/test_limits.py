"""Limits are what was promised, and hold exactly at their edge."""

from datetime import timedelta

import pytest

from holdfast.core import limits
from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ACTOR_KINDS,
    BATCH_ITEMS_MAX,
    DELAY_MAX,
    ID_CHARACTERS_MAX,
    LEASE_MAX,
    LEASE_MIN,
    batches,
    byte_batches,
    check_actor,
    check_bytes,
    check_delay,
    check_id,
    check_interval,
    check_lease,
    check_text,
    clip,
    slices,
)

TICK = timedelta(microseconds=1)
KIB = 1024
PROMISED: dict[str, object] = {
    "ID_CHARACTERS_MAX": 128,
    "QUEUE_CHARACTERS_MAX": 128,
    "PAYLOAD_BYTES_MAX": 256 * KIB,
    "RESULT_BYTES_MAX": 256 * KIB,
    "CHECKPOINT_BYTES_MAX": 256 * KIB,
    "ATTRIBUTES_BYTES_MAX": 64 * KIB,
    "MESSAGE_CHARACTERS_MAX": 4096,
    "JSON_DEPTH_MAX": 64,
    "LABELS_MAX": 64,
    "LABEL_CHARACTERS_MAX": 256,
    "BATCH_ITEMS_MAX": 1000,
    "BATCH_BYTES_MAX": 16 * 1024 * 1024,
    "PAGE_ITEMS_MAX": 1000,
    "FOLLOW_UPS_MAX": 100,
    "PRIORITY_MAX": 9,
    "ATTEMPTS_MAX": 100,
    "FACTOR_MAX": 1000,
    "NUMBER_MAX": 9_223_372_036_854_775_807,
    "LEASE_MIN": timedelta(seconds=1),
    "LEASE_MAX": timedelta(days=1),
    "LEASE_DEFAULT": timedelta(minutes=1),
    "WORK_SECONDS_MAX": 1_000_000_000.0,
    "DELAY_MAX": timedelta(days=366),
    "TTL_MAX": timedelta(days=3660),
    "NOT_UNDERSTOOD_MAX": 20,
    "NOT_UNDERSTOOD_DELAY_MAX": timedelta(seconds=60),
    "NOT_STARTED_MAX": 20,
    "CLOCK_AHEAD_MAX": timedelta(days=1),
    "OUTPUT_CHUNK_BYTES_MAX": 64 * KIB,
    "OUTPUT_ATTEMPT_BYTES_MAX": KIB * KIB * KIB,
    "OUTPUT_RESERVE_BYTES": 64 * KIB * KIB,
    "EVENT_BYTES": 64,
    "OUTPUT_BATCH_ITEMS_MAX": 50,
    "OUTPUT_BATCH_BYTES_MAX": 256 * KIB,
    "OUTPUT_BATCH_BYTES_ADVISED": 128 * KIB,
    "OUTPUT_READ_BYTES_MAX": 200 * KIB,
    "OUTPUT_EVENT_BYTES_MAX": 512 * KIB,
    "OUTPUT_LATE_MAX": timedelta(minutes=10),
    "PUBLISH_BYTES": KIB * KIB,
    "EVENTS_PER_PUBLISH_MAX": 1000,
    "OUTPUTS_NAMED_MAX": 100,
    "OUTPUT_NAME_CHARACTERS_MAX": 1024,
    "OUTPUTS_NAMED_BYTES_MAX": 16 * KIB,
    "ENTRIES_MAX": 10_000_000,
    "TASK_BYTES_MAX": KIB * KIB,
    "KEY_LIFE_DEFAULT": timedelta(days=90),
    "KEY_LIFE_MAX": timedelta(days=366),
    "KEY_NAME_CHARACTERS_MAX": 120,
    "KEYS_ACTIVE_MAX": 2,
    "KEYS_MAX": 1000,
    "GRANT_PATTERNS_MAX": 64,
    "WORKERS_MAX": 5000,
    "ANNOUNCED_QUEUES_MAX": 100,
    "ANNOUNCED_KINDS_MAX": 500,
}


def test_every_limit_is_what_was_promised() -> None:
    named = {name: value for name, value in vars(limits).items() if name in PROMISED}
    unnamed = [name for name in vars(limits) if name.endswith("_MAX") and name not in PROMISED]

    assert named == PROMISED
    assert unnamed == []


def test_what_clients_are_told_and_one_read_more_fit_into_an_event() -> None:
    told_elsewhere = 256 * KIB

    assert limits.OUTPUT_BATCH_BYTES_ADVISED + limits.OUTPUT_READ_BYTES_MAX < 350 * KIB
    assert told_elsewhere + limits.OUTPUT_READ_BYTES_MAX <= limits.OUTPUT_EVENT_BYTES_MAX
    assert limits.OUTPUT_CHUNK_BYTES_MAX <= limits.OUTPUT_EVENT_BYTES_MAX <= limits.PUBLISH_BYTES


@pytest.mark.parametrize("value", ["a", "job-1", "A.b_c:d-9", "x" * ID_CHARACTERS_MAX])
def test_a_safe_id_is_given_back(value: str) -> None:
    assert check_id(value, "job_id") == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x" * (ID_CHARACTERS_MAX + 1),
        "a b",
        "a/b",
        "a\n",
        "ä",
        "\x1b[31m",
        "a\0",
        "\udcff",
        "../x",
        ".",
        "..",
        "[",
    ],
)
def test_an_unsafe_id_is_invalid_and_named(value: str) -> None:
    with pytest.raises(Invalid, match=r"^job_id "):
        check_id(value, "job_id")


def test_bytes_are_counted_exactly() -> None:
    assert check_bytes(b"123", "payload", 3) == b"123"
    with pytest.raises(Invalid, match="4 bytes; at most 3"):
        check_bytes(b"1234", "payload", 3)


@pytest.mark.parametrize("value", [LEASE_MIN, LEASE_MAX])
def test_a_lease_may_be_as_short_and_as_long_as_its_limits(value: timedelta) -> None:
    assert check_lease(value) == value


@pytest.mark.parametrize("value", [LEASE_MIN - TICK, LEASE_MAX + TICK, timedelta()])
def test_a_lease_outside_its_limits_is_invalid(value: timedelta) -> None:
    with pytest.raises(Invalid):
        check_lease(value)


def test_text_is_only_clipped_when_it_is_too_long() -> None:
    assert clip("x" * 40, 40) == "x" * 40
    assert clip("x" * 41, 40) == "x" * 25 + " … [shortened]"


def test_what_is_not_text_is_replaced_and_what_is_text_is_kept() -> None:
    assert clip("naïve Größe 日本") == "naïve Größe 日本"
    assert clip("broken \udcff text") == "broken ? text"
    assert clip("a \0 and \0") == "a ? and ?"
    assert clip("naïve \0") == "naïve ?"
    assert clip("\x1b[31mred\x1b[0m\n\t\x07") == "\x1b[31mred\x1b[0m\n\t\x07"
    assert clip("\0" * 41, 40) == "?" * 25 + " … [shortened]"
    assert clip("x" * 4096) == "x" * 4096
    assert clip("x" * 4097).endswith("x … [shortened]")


@pytest.mark.parametrize("value", [timedelta(), DELAY_MAX])
def test_a_delay_is_from_none_to_a_year(value: timedelta) -> None:
    assert check_delay(value) == value


@pytest.mark.parametrize("value", [-TICK, DELAY_MAX + TICK])
def test_a_delay_outside_its_limits_is_named(value: timedelta) -> None:
    with pytest.raises(Invalid, match=r"^A delay is from"):
        check_delay(value)
    with pytest.raises(Invalid, match=r"^The pause is from"):
        check_delay(value, "The pause")


@pytest.mark.parametrize("value", [LEASE_MIN / 3, LEASE_MAX / 3])
def test_three_heartbeat_intervals_make_a_lease(value: timedelta) -> None:
    assert check_interval(value) == value


@pytest.mark.parametrize("value", [LEASE_MIN / 3 - TICK, LEASE_MAX / 3 + TICK])
def test_a_heartbeat_interval_that_makes_no_lease_is_invalid(value: timedelta) -> None:
    with pytest.raises(Invalid):
        check_interval(value)


@pytest.mark.parametrize("kind", ["user", "worker", "system", "validator", "sync"])
def test_an_actor_has_a_kind_and_a_name(kind: str) -> None:
    assert check_actor(f"{kind}:x") == f"{kind}:x"
    assert len(ACTOR_KINDS) == 5


@pytest.mark.parametrize("actor", ["", "user", "user:", ":ana", "robot:r", "User:ana", "ana:user"])
def test_an_actor_without_kind_or_name_is_invalid(actor: str) -> None:
    with pytest.raises(Invalid, match="needs a kind and a name"):
        check_actor(actor)


@pytest.mark.parametrize("actor", ["user:" + "x" * 124, "user:\udcff"])
def test_an_actor_is_short_and_text(actor: str) -> None:
    with pytest.raises(Invalid, match=r"^actor "):
        check_actor(actor)


def test_text_of_any_language_is_taken_and_what_is_no_text_is_not() -> None:
    assert check_text("naïve Größe 日本", "A name", 14) == "naïve Größe 日本"
    for value in ("\udcff", "x" * 21):
        with pytest.raises(Invalid, match="A name"):
            check_text(value, "A name", 20)


def test_a_text_with_a_nul_is_refused() -> None:
    assert check_text("a b", "name", 10) == "a b"
    with pytest.raises(Invalid, match="NUL") as caught:
        check_text("a\0b", "name", 10)
    assert type(caught.value) is Invalid


@pytest.mark.parametrize("owner", ["w-1", "w-1@reports", "a:b@c:d"])
def test_an_owner_is_an_id_and_perhaps_the_name_of_a_key(owner: str) -> None:
    assert limits.check_owner(owner) == owner


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ("", "owner is empty"),
        ("@reports", "owner is empty"),
        ("w 1", "owner 'w 1' may only"),
        ("w-1@", "The key of an owner is empty"),
        ("w-1@a@b", "The key of an owner 'a@b' may only"),
    ],
)
def test_what_is_no_owner_is_refused_by_the_part_that_is_wrong(owner: str, words: str) -> None:
    with pytest.raises(Invalid, match=f"^{words}"):
        limits.check_owner(owner)


def test_a_completion_asks_for_so_many_follow_ups_and_no_more() -> None:
    limits.check_follow_ups(limits.FOLLOW_UPS_MAX)

    with pytest.raises(Invalid, match=f"^{limits.FOLLOW_UPS_MAX + 1} follow-ups at once; at most"):
        limits.check_follow_ups(limits.FOLLOW_UPS_MAX + 1)


def test_batches_keep_to_both_limits_and_a_larger_element_is_a_batch_of_its_own() -> None:
    assert list(batches([])) == []
    assert list(batches([(1, 0)] * (BATCH_ITEMS_MAX + 1))) == [
        (0, BATCH_ITEMS_MAX, 0),
        (BATCH_ITEMS_MAX, BATCH_ITEMS_MAX + 1, 0),
    ]
    weights = [(1, 4), (1, 6), (1, 1), (1, 99), (BATCH_ITEMS_MAX, 1), (1, 1)]
    assert list(batches(weights, 10)) == [
        (0, 2, 10),
        (2, 3, 1),
        (3, 4, 99),
        (4, 5, 1),
        (5, 6, 1),
    ]


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [1],
        [1] * BATCH_ITEMS_MAX,
        [1] * (BATCH_ITEMS_MAX + 1),
        [limits.BATCH_BYTES_MAX - 1, 1],
        [limits.BATCH_BYTES_MAX, 1, 2],
    ],
)
def test_batches_by_size_alone_are_those_of_elements_of_one_item(sizes: list[int]) -> None:
    assert list(byte_batches(sizes)) == list(batches([(1, size) for size in sizes]))


def test_slices_are_in_order_and_the_last_may_be_shorter() -> None:
    assert list(slices([], 2)) == []
    assert list(slices([1, 2, 3], 2)) == [[1, 2], [3]]


def test_a_batch_ends_before_an_element_that_would_be_too_much() -> None:
    most = BATCH_ITEMS_MAX

    assert list(batches([], 10)) == []
    assert list(batches([(1, 10), (1, 0), (1, 1)], 10)) == [(0, 2, 10), (2, 3, 1)]
    assert list(batches([(1, 99), (1, 99)], 10)) == [(0, 1, 99), (1, 2, 99)]  # one element always fits
    assert list(batches([(most, 0), (1, 0), (most - 1, 0), (1, 0)], 10)) == [
        (0, 1, 0),
        (1, 3, 0),
        (3, 4, 0),
    ]
