"""Documents: every field, what follows from them, and nothing that opens a door."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.core.access import Key, Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.documents import document, event_document, job_document
from holdfast.core.event import Event
from holdfast.core.job import Job, Lease
from holdfast.core.spec import Spec
from holdfast.core.state import State

NOW = datetime(2026, 11, 16, tzinfo=UTC)
LEASE = Lease("w-1", NOW + timedelta(minutes=1), timedelta(minutes=1), NOW, NOW)
JOB = Job("j-1", Spec(), State.RUNNING, NOW, NOW, NOW, lease=LEASE)


def test_a_job_has_every_field_and_who_owns_it_and_when_it_is_due() -> None:
    told = job_document(JOB)

    assert set(told) == {*Job.__struct_fields__, "owner", "due_at"}
    assert (told["owner"], told["due_at"]) == ("w-1", LEASE.expires_at)
    assert told["attempt"] == 1
    assert told["result"] is None
    spec = told["spec"]
    assert isinstance(spec, dict)
    assert set(spec) == set(Spec.__struct_fields__)
    assert spec["retry"]["max_failures"] == 5
    assert document(JOB) == told


def test_an_event_begins_with_its_id() -> None:
    event = Event("job_queued", EventClass.TRANSITION, NOW, "j-1", 1)

    told = event_document(event)

    assert next(iter(told)) == "event_id"
    assert set(told) == {"event_id", *Event.__struct_fields__}
    assert told["event_id"] == "j-1/1"
    assert document(event) == told


def test_of_a_key_its_digest_is_kept_back() -> None:
    key = Key(
        key_id="0" * 12, name="ana", digest="d" * 64, scopes=(Scope.WORK,), created_at=NOW,
        expires_at=NOW, created_by="user:root",
    )  # fmt: skip

    assert set(document(key)) == set(Key.__struct_fields__) - {"digest"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b'{"a":1}', b'{"a":1}'),
        (b'{"a": 1}', b'{"a": 1}'),
        (b'{"a":\n1}', b'{"a":1}'),
        (b"[1,\r2]", b"[1,2]"),
    ],
)
def test_json_stays_as_it_was_given_on_one_line(given: bytes, told: bytes) -> None:
    assert bytes(document(msgspec.Raw(given))) == told


def test_lists_have_documents_and_everything_else_is_as_it_is() -> None:
    assert document((JOB, "text", 1)) == [job_document(JOB), "text", 1]
    assert document([JOB]) == [job_document(JOB)]
    assert document({"a": 1}) == {"a": 1}
    assert document(None) is None
    assert document(NOW) is NOW
