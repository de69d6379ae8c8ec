"""The segment as text: what is stored stays readable, so its encoding is a promise, byte by byte."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core import segment
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.state import State

NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
US = "1893553445678901"
CLAIMED = Event(
    "job_claimed",
    EventClass.TRANSITION,
    NOW,
    "a",
    2,
    2,
    State.QUEUED,
    State.ASSIGNED,
    1,
    1,
    "op",
    "worker:w",
)
OUTPUT = Event("output", EventClass.WORKER, NOW, "a", attempt=1, fencing_token=1, sequence=3)
LINE = (
    '"event_type":"job_claimed","event_class":"transition","occurred_at":' + US + ","
    '"offset":2,"transition_no":2,"from_state":"queued","to_state":"assigned","attempt":1,'
    '"fencing_token":1,'
)


def text_of(*events: Event, place: int = 0) -> str:
    """The one segment of these events, whose jobs have their ids for keys."""
    [one] = segment.encode(events, lambda job_id: job_id, place=place)
    return one.text


def read(text: str) -> list[tuple[int, Event]]:
    """All events of a segment whose job is `a`, each with its place."""
    return list(segment.decode(text, {"a": "a"}))


def test_one_event() -> None:
    text = '{"n":1,"job":"a",' + LINE + '"op_id":"op","actor":"worker:w"}'

    assert text_of(CLAIMED) == text
    assert read(text) == [(0, CLAIMED)]


def test_what_differs_is_an_array_and_what_is_the_same_is_one_value() -> None:
    events = [replace(CLAIMED, op_id=f"call.{n}", actor=f"worker:{n}") for n in range(2)]
    text = (
        '{"n":2,"job":"a",' + LINE + '"op_id":["0","1"],"actor":["worker:0","worker:1"],"op_start":"call."}'
    )

    assert text_of(*events) == text
    assert read(text) == list(enumerate(events))


def test_a_text_that_begins_the_other_is_their_common_start() -> None:
    events = [replace(CLAIMED, op_id="call.10"), replace(CLAIMED, op_id="call.1")]

    assert text_of(*events).endswith('"op_id":["0",""],"actor":"worker:w","op_start":"call.1"}')
    assert read(text_of(*events)) == list(enumerate(events))


def test_a_place_other_than_the_first_is_written() -> None:
    text = '{"n":1,"job":"a","at":7,' + LINE + '"op_id":"op","actor":"worker:w"}'

    assert text_of(CLAIMED, place=7) == text
    assert read(text) == [(7, CLAIMED)]


def test_places_go_on_from_segment_to_segment() -> None:
    other = replace(CLAIMED, event_type="job_started")
    made = segment.encode([CLAIMED, CLAIMED, other], lambda job_id: job_id, place=3)

    assert [(one.place, one.events) for one in made] == [(3, 2), (5, 1)]
    assert msgspec.json.decode(made[1].text)["at"] == 5


def test_a_rare_field_of_one_event_is_an_array_for_all() -> None:
    later = replace(OUTPUT, sequence=4, data=b"\x00\xff", received_at=NOW, schema_version=2)
    text = (
        '{"n":2,"job":"a","event_type":"output","event_class":"worker","occurred_at":' + US + ","
        '"attempt":1,"fencing_token":1,"sequence":[3,4],"received_at":[null,' + US + "],"
        '"data":[null,"AP8="],"schema_version":[1,2]}'
    )

    assert text_of(OUTPUT, later) == text
    assert read(text) == [(0, OUTPUT), (1, later)]


def test_one_event_with_a_rare_field_is_written_beside_one_without() -> None:
    caused = replace(CLAIMED, cause="job-0/3")

    assert text_of(CLAIMED, caused).endswith('"actor":"worker:w","cause":[null,"job-0/3"]}')
    assert read(text_of(CLAIMED, caused)) == [(0, CLAIMED), (1, caused)]


ABSENT = '{"n":1,"job":"a","event_type":"t","event_class":"fact","occurred_at":0}'
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = Event("t", EventClass.FACT, EPOCH, "a")
COLUMNS: list[tuple[str, object, str]] = [
    ("offset", 5, "5"),
    ("transition_no", 3, "3"),
    ("from_state", State.QUEUED, '"queued"'),
    ("to_state", State.ASSIGNED, '"assigned"'),
    ("attempt", 2, "2"),
    ("fencing_token", 4, "4"),
    ("op_id", "op", '"op"'),
    ("actor", "operator:o", '"operator:o"'),
    ("reason", "why", '"why"'),
    ("attributes", {"b": [1, None]}, '{"b":[1,null]}'),
    ("correlation_id", "c", '"c"'),
    ("trace_id", "t", '"t"'),
    ("sequence", 1, "1"),
    ("end_sequence", 9, "9"),
    ("cause", "x/1", '"x/1"'),
    ("task_id", "t1", '"t1"'),
    ("execution_id", "e1", '"e1"'),
    ("span_id", "s1", '"s1"'),
    ("received_at", EPOCH + timedelta(microseconds=1), "1"),
    ("expires_at", EPOCH - timedelta(microseconds=1), "-1"),
    ("given_id", "mine", '"mine"'),
    ("stream", "out", '"out"'),
    ("data", b"", '""'),
    ("schema_version", 2, "2"),
]


def test_every_field_of_an_event_has_its_encoding_here() -> None:
    given = {name for name, _, _ in COLUMNS}

    assert given == set(Event.__struct_fields__[4:]) - {"log_id"}


def test_a_field_that_is_absent_has_its_default() -> None:
    assert text_of(PLAIN) == ABSENT
    assert read(ABSENT) == [(0, PLAIN)]


@pytest.mark.parametrize(("name", "value", "written"), COLUMNS)
def test_a_field_that_is_not_its_default_is_written(name: str, value: object, written: str) -> None:
    event = replace(PLAIN, **{name: value})
    text = ABSENT.removesuffix("}") + f',"{name}":{written}}}'

    assert text_of(event) == text
    [(place, found)] = read(text)
    assert (place, found) == (0, event)
    assert type(getattr(found, name)) is type(value)


@pytest.mark.parametrize(("name", "value", "written"), COLUMNS)
def test_null_in_an_array_stands_for_the_default(name: str, value: object, written: str) -> None:
    text = ABSENT.replace('"n":1', '"n":2').removesuffix("}") + f',"{name}":[null,{written}]}}'

    assert read(text) == [(0, PLAIN), (1, replace(PLAIN, **{name: value}))]


def test_a_class_is_read_as_one() -> None:
    [(_, found)] = read(ABSENT)

    assert found.event_class is EventClass.FACT


def test_the_number_of_an_event_is_not_in_its_segment() -> None:
    assert text_of(replace(PLAIN, log_id=12)) == ABSENT


def test_a_job_is_named_by_its_key() -> None:
    events = [replace(CLAIMED, job_id=job_id) for job_id in "ab"]
    keys: dict[str | None, segment.JobKey] = {"a": 17, "b": None}

    [one] = segment.encode(events, keys.__getitem__)

    assert one.jobs == [17, None]
    assert one.text.startswith('{"n":2,"job":[17,null],')
    assert list(segment.decode(one.text, {17: "a", None: "b"})) == list(enumerate(events))


def test_a_segment_says_of_its_first_event_when_it_was() -> None:
    later = replace(CLAIMED, occurred_at=NOW + timedelta(seconds=1))

    [one] = segment.encode([CLAIMED, later], lambda job_id: job_id)

    assert (one.event_type, one.event_class) == ("job_claimed", EventClass.TRANSITION)
    assert (one.occurred_at, one.place, one.events) == (NOW, 0, 2)


def test_numbers_of_events_leave_room_for_a_million_in_a_commit() -> None:
    assert segment.log_id(3, 5) == 3 * 1_048_576 + 5
    assert segment.commit_of(1_048_575) == (0, 1_048_575)
    assert segment.commit_of(1_048_576) == (1, 0)


def test_a_segment_has_at_most_ten_thousand_events() -> None:
    events = [CLAIMED] * 10_001

    assert [one.events for one in segment.encode(events, lambda job_id: job_id)] == [10_000, 1]


def test_what_is_left_of_a_segment_names_its_places() -> None:
    events = [replace(CLAIMED, job_id=job_id, op_id=job_id) for job_id in "abc"]
    left = '{"n":2,"job":["a","c"],' + LINE + '"op_id":["a","c"],"actor":"worker:w","op_start":"","at":[4,6]}'

    assert segment.without(text_of(*events, place=4), {"b"}) == left
    assert read(left) == [(4, events[0])]
    assert segment.without(left, {"a"}) == left.replace('["a","c"]', '["c"]').replace(
        '"n":2', '"n":1'
    ).replace("[4,6]", "[6]")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", msgspec.DecodeError, "Input data was truncated"),
        ("[1]", msgspec.ValidationError, "Expected `object`, got `array`"),
        ("{}", KeyError, "'n'"),
        ('{"n": 1}', KeyError, "'job'"),
        ('{"n": "1", "job": "a"}', TypeError, None),
        ('{"n": 2, "job": ["a"]}', ValueError, "job has 1 values for 2 events"),
        ('{"n": 2, "job": ["a", "a", "a"]}', ValueError, "job has 3 values for 2 events"),
        ('{"n": 2, "job": "a", "at": [0]}', ValueError, "at has 1 values for 2 events"),
    ],
)
def test_a_text_that_is_no_segment_is_refused(text: str, error: type[Exception], message: str | None) -> None:
    with pytest.raises(error) as refused:
        read(text)
    assert message is None or str(refused.value) == message


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('"reason": ["x"]', "reason has 1 values for 2 events"),
        ('"op_id": ["x", "y", "z"]', "op_id has 3 values for 2 events"),
        ('"event_class": "no such"', "'no such' is not a valid EventClass"),
        ('"to_state": "no such"', "'no such' is not a valid State"),
        ('"data": "*"', "Invalid base64 encoded string"),
    ],
)
def test_a_damaged_field_is_named(field: str, message: str) -> None:
    text = ABSENT.replace('"n":1', '"n":2').removesuffix("}") + f", {field}}}"

    with pytest.raises(ValueError, match=f"^{message}$"):
        read(text)


@pytest.mark.parametrize("reasons", [1, 3])
def test_nothing_is_taken_out_of_a_damaged_segment(reasons: int) -> None:
    text = ABSENT.replace('"n":1,"job":"a"', '"n":2,"job":["a","b"]')
    damaged = text.removesuffix("}") + f',"reason":{["x"] * reasons}}}'.replace("'", '"')

    with pytest.raises(ValueError, match=f"^reason has {reasons} values for 2 events$"):
        segment.without(damaged, {"b"})
