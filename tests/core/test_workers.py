"""Workers as they announce themselves: what is kept, how long, and who may see it."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.access import Principal, Scope
from holdfast.core.errors import Invalid
from holdfast.core.limits import ANNOUNCED_KINDS_MAX
from holdfast.core.workers import (
    SILENT_AFTER,
    QueueInfo,
    WorkerInfo,
    check_worker,
    last_seen_first,
    namesakes,
    visible_worker,
)
from holdfast.testing.fakes import EPOCH

WORKER = WorkerInfo(
    name="w1",
    instance="a",
    queues=("mail", "default"),
    kinds=("send", "send:2"),
    executors=("function",),
    slots=4,
    host="host-1",
    pid=7,
    app="shop:app",
    version="0.1.0",
    started_at=EPOCH,
    seen_at=EPOCH,
)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("changes", "after", "state", "free"),
    [
        ({}, SECOND, "idle", 4),
        ({"busy": 3}, SECOND, "busy", 1),
        ({"busy": 5}, SECOND, "full", 0),
        ({"busy": 1, "paused": True}, SECOND, "paused", 0),
        ({"busy": 1, "paused": True, "leaving": True}, SECOND, "leaving", 0),
        ({"leaving": True}, SILENT_AFTER, "silent", 0),
        ({}, -SECOND, "idle", 4),
        ({}, -SILENT_AFTER, "silent", 4),
        ({"stopped": True}, SILENT_AFTER, "stopped", 4),
    ],
)
def test_the_state_of_a_worker_is_one_word(
    changes: dict[str, object], after: timedelta, state: str, free: int
) -> None:
    worker = replace(WORKER, **changes)

    assert (worker.state(EPOCH + after), worker.free("send")) == (state, free)
    assert worker.live(EPOCH + after) is (state not in ("silent", "stopped"))


def test_some_kinds_have_fewer_slots_than_others() -> None:
    mixed = replace(WORKER, slots=100, busy=3, thread_kinds=("resize",), thread_slots=2, thread_busy=2)
    full = replace(mixed, busy=100, thread_busy=1)

    assert [(mixed.taken(kind), mixed.free(kind)) for kind in ("send", "resize")] == [
        ((3, 100), 97),
        ((2, 2), 0),
    ]
    assert (full.taken("resize"), full.free("resize")) == ((100, 100), 0)
    assert replace(mixed, thread_busy=1).free("resize") == 1


def test_a_worker_has_a_place() -> None:
    assert WORKER.place == "host-1, process 7"
    assert replace(WORKER, host="", pid=0).place == "an unknown host, process unknown"


def test_a_worker_is_kept_as_it_is_and_what_it_names_twice_once() -> None:
    assert check_worker(WORKER) == WORKER
    twice = replace(WORKER, queues=("mail", "default", "mail"), kinds=(*WORKER.kinds, "send"))
    assert check_worker(twice) == WORKER


def test_a_worker_with_very_many_kinds_is_kept_with_the_first_of_them() -> None:
    many = tuple(f"kind-{n}" for n in range(ANNOUNCED_KINDS_MAX + 1))

    assert check_worker(replace(WORKER, kinds=many)).kinds == many[:-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "owner"),
        ({"instance": ""}, "instance is empty"),
        ({"queues": ()}, "at least one queue"),
        ({"queues": ("a b",)}, "queue"),
        ({"kinds": ("a b",)}, "A name"),
        ({"executors": ("a b",)}, "A name"),
        ({"region": "a b"}, "A name"),
        ({"host": "h" * 257}, "A text about a worker has 257 characters"),
        ({"app": "\0"}, "NUL"),
        ({"thread_kinds": ("a b",)}, "A name"),
        ({"busy": -1}, "numbers from 0"),
        ({"slots": 2**63}, "numbers from 0"),
    ],
)
def test_what_no_worker_can_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        check_worker(replace(WORKER, **changes))


def test_workers_are_listed_by_when_they_were_seen_then_by_name() -> None:
    later = replace(WORKER, instance="b", seen_at=EPOCH + SECOND)
    other = replace(WORKER, name="w0", instance="c")

    assert last_seen_first([WORKER, later, other]) == [later, other, WORKER]


def test_namesakes_are_live_and_other_processes() -> None:
    other = replace(WORKER, instance="b")
    known = [WORKER, other, replace(other, name="w2"), replace(other, stopped=True)]

    assert namesakes(WORKER, known, EPOCH + SECOND) == (other,)
    assert namesakes(WORKER, known, EPOCH + SILENT_AFTER) == ()


@pytest.mark.parametrize(
    ("queues", "regions", "region", "seen"),
    [
        (("*",), (), None, WORKER),
        (("mail", "def*"), (), None, WORKER),
        (("mail",), (), None, replace(WORKER, queues=("mail",), kinds=(), host="", pid=0, app=None)),
        (("other",), (), None, None),
        (("*",), ("eu",), "us", None),
        (("*",), ("eu",), "eu", replace(WORKER, region="eu")),
    ],
)
def test_a_caller_sees_the_queues_it_reaches_and_no_code_beside_others(
    queues: tuple[str, ...], regions: tuple[str, ...], region: str | None, seen: WorkerInfo | None
) -> None:
    caller = Principal("ana", frozenset({Scope.OBSERVE}), queues, regions)

    assert visible_worker(caller, replace(WORKER, region=region)) == seen


def test_the_ready_jobs_of_a_queue_are_those_that_are_not_delayed() -> None:
    assert QueueInfo(queue="q", queued=5, delayed=2).ready == 3
    assert QueueInfo(queue="q", queued=1, delayed=2).ready == 0
