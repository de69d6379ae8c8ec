"""Why a queued job waits: no worker serves its queue, all are busy, or none has its kind."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.explanation import explain
from holdfast.core.job import Job
from holdfast.core.spec import JOB_V1_KIND, Spec
from holdfast.core.wait_explanation import AHEAD_MAX, Surroundings, describe_wait
from holdfast.core.workers import WorkerInfo
from tests.core.sample_jobs import NOW, after, enqueue

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
WORKER = WorkerInfo(
    name="w1",
    instance="1",
    queues=("default",),
    kinds=("command", "resize"),
    slots=4,
    host="h",
    pid=7,
    started_at=NOW,
    seen_at=NOW,
)
FULL = replace(WORKER, busy=4)


def job(**spec: object) -> Job:
    return after(enqueue(Spec(**spec)))  # type: ignore[arg-type]


def told(asked: Job, *workers: WorkerInfo, **around: object) -> str | None:
    surroundings = Surroundings(workers=workers, **around)  # type: ignore[arg-type]
    return describe_wait(asked, NOW + 9 * SECOND, surroundings)


def named(name: str, **changes: object) -> WorkerInfo:
    return replace(WORKER, name=name, instance=name, **changes)


def test_nobody_serves_the_queue_and_nobody_did() -> None:
    assert told(job(queue="mail")) == (
        "No known worker serves queue mail, nor did one in the last 24 h. Start one: holdfast worker -q mail"
    )
    assert told(job(queue="mail", kind="send"), WORKER) == (
        "No known worker serves queue mail, nor did one in the last 24 h."
        " Start one: holdfast worker MODULE:APP -q mail"
    )


def test_a_mistyped_queue_is_told_which_one_may_be_meant() -> None:
    assert told(job(queue="defualt"), WORKER) == (
        "No known worker serves queue defualt, nor did one in the last 24 h."
        " Did you mean queue default? w1 serves it. Start one: holdfast worker -q defualt"
    )
    two = told(job(queue="defualt"), WORKER, named("w2"), names=False) or ""
    assert "Did you mean queue default? 2 workers serve it." in two
    assert "mean" not in (told(job(queue="defualt"), WORKER, reaches=lambda queue: False) or "")
    assert "mean" not in (told(job(queue="defualt"), replace(WORKER, stopped=True)) or "")


@pytest.mark.parametrize(
    ("changes", "names", "words"),
    [
        ({"stopped": True}, True, "the last one, w1, stopped 3.0 h ago."),
        ({}, True, "the last one, w1, was last heard of 3.0 h ago."),
        ({}, False, "the last one was last heard of 3.0 h ago."),
    ],
)
def test_the_last_worker_of_the_queue_is_named_and_when_it_was_seen(
    changes: dict[str, object], names: bool, words: str
) -> None:
    last = replace(WORKER, seen_at=NOW + 9 * SECOND - 3 * HOUR, **changes)
    before = named("w0", seen_at=NOW - 5 * HOUR)

    said = told(job(), before, last, names=names)

    assert said == f"No known worker serves queue default: {words} Start one: holdfast worker -q default"


def test_workers_that_do_not_announce_themselves_are_not_overlooked() -> None:
    assert told(job(), moving=True) is None
    assert told(job(kind=JOB_V1_KIND), WORKER) is None
    assert told(job(executor="k8s"), WORKER) is None


def test_a_region_without_a_worker_is_told() -> None:
    asked = job(region="eu")

    assert told(asked, replace(WORKER, region="us")) == (
        "Queue default is served by w1, but not in region eu."
        " Start a worker there: holdfast worker -q default --region eu"
    )
    for region in ("eu", None):
        assert "It waits to be claimed by w1" in (told(asked, replace(WORKER, region=region)) or "")


def test_a_kind_that_nobody_has_is_told_and_other_versions_of_it() -> None:
    assert told(job(kind="crop"), WORKER) == (
        "Queue default is served by w1, but not for the kind crop."
        " Start a worker whose app has it: holdfast worker MODULE:APP -q default"
    )
    both = named("w2", kinds=("resize", "resize:3"))
    assert told(job(kind="resize:2"), WORKER, both, named("w0", kinds=("send",))) == (
        "Queue default is served by w1, w2, w0, but not for resize:2, only for resize, resize:3 (w1, w2),"
        " which is another version of the code. Start a worker with the code that made the job:"
        " holdfast worker MODULE:APP -q default"
    )
    assert "served by 1 worker, but not for resize:2, only for resize, which" in (
        told(job(kind="resize:2"), WORKER, names=False) or ""
    )
    assert told(job(), replace(WORKER, kinds=("resize",))) == (
        "Queue default is served by w1, but not for commands."
        " Start a worker for them: holdfast worker -q default"
    )


def test_a_busy_worker_is_named_and_how_many_jobs_are_ahead() -> None:
    assert told(job(), FULL, ahead=12) == (
        "w1, the only worker that can run it, is busy, with 4 of 4 slots taken 9.0 s ago;"
        " 12 jobs are ahead of it in its queue."
    )
    mixed = replace(WORKER, slots=100, busy=3, thread_kinds=("resize",), thread_slots=2, thread_busy=2)
    assert "is busy, with 2 of 2 slots taken" in (told(job(kind="resize"), mixed) or "")
    assert "with 97 free slots" in (told(job(), mixed) or "")
    assert told(job(), FULL, names=False) == "Its only worker is busy, with 4 of 4 slots taken 9.0 s ago."
    paused = replace(WORKER, busy=1, paused=True)
    assert "w1, the only worker that can run it, claims nothing for a while" in (told(job(), paused) or "")


def test_busy_workers_are_listed_the_first_of_them() -> None:
    crowd = [named(f"w{n}", busy=4) for n in range(2, 6)]
    crowd[0] = replace(crowd[0], leaving=True)

    assert told(job(), FULL, *crowd, ahead=1) == (
        "All 5 workers that can run it are busy: w1 is busy, with 4 of 4 slots taken; w2 is leaving, with"
        " 4 of 4 slots taken; w3 is busy, with 4 of 4 slots taken and 2 more 9.0 s ago;"
        " 1 job is ahead of it in its queue."
    )
    assert told(job(), FULL, *crowd, names=False) == "All 5 workers that can run it are busy 9.0 s ago."


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (None, ""),
        (0, "; it is the next of its queue"),
        (AHEAD_MAX, "; 1,000 or more jobs are ahead of it in its queue"),
    ],
)
def test_a_worker_with_free_slots_is_named(ahead: int | None, words: str) -> None:
    almost = named("w2", busy=3)

    assert told(job(), FULL, almost, ahead=ahead) == (
        f"It waits to be claimed by w2, with 1 free slot 9.0 s ago{words}."
    )
    assert told(job(), WORKER) == "It waits to be claimed by w1, with 4 free slots 9.0 s ago."


def test_a_job_for_later_is_told_only_what_would_keep_it_waiting_then() -> None:
    later = job(delay=HOUR)
    wait = told(later)

    assert told(later, WORKER) is None
    assert told(later, FULL) is None
    assert explain(later, NOW, wait=wait) == (
        "It waits until 2026-01-01 01:00:00 UTC (60 min); then any worker on queue default may claim it."
        f" {wait}"
    )


def test_the_explanation_of_a_queued_job_has_what_its_workers_do() -> None:
    asked = replace(job(ttl=HOUR), attempt=2, reason="w lost the lease.")

    assert explain(asked, NOW + 9 * SECOND, wait="So.", waiting=2) == (
        "It has been ready for 9.0 s, beside 2 other jobs. It is given up at 01:00:00 UTC."
        " Attempt 1 ended: w lost the lease. So."
    )
