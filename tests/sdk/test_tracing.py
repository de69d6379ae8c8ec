"""The trace of a submitter without OpenTelemetry: the one of the handler, or one that is given."""

import pytest

import holdfast
from holdfast.core.errors import Invalid
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.job_submission import TracedSubmission
from holdfast.testing import memory_app

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{'b' * 32}-{SPAN}-00"


def test_outside_of_any_trace_requests_stay_as_they_are() -> None:
    asked = [JobRequest(spec=Spec())]

    with TracedSubmission(asked) as requests:
        assert requests is asked


def test_a_trace_that_is_handed_in_is_for_those_that_name_none() -> None:
    named = JobRequest(spec=Spec(), trace_id="mine")
    own = JobRequest(spec=Spec(), traceparent=OTHER)

    with TracedSubmission([JobRequest(spec=Spec()), named, own], PARENT) as requests:
        assert [one.traceparent for one in requests] == [PARENT, None, OTHER]
        assert list(requests[1:]) == [named, own]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"traceparent": "00-what"}, "traceparent '00-what' is not valid"),
        ({"traceparent": PARENT, "trace_id": "mine"}, "name two traces"),
    ],
)
def test_a_trace_that_is_none_is_refused_where_it_is_given(options: dict[str, str], words: str) -> None:
    app = holdfast.App("memory://")

    @app.job
    def nothing() -> None: ...

    with pytest.raises(Invalid, match=words):
        nothing.configure(**options)  # type: ignore[arg-type]


def test_what_a_handler_submits_is_part_of_its_jobs_trace() -> None:
    app = holdfast.App("memory://")

    @app.job
    def child() -> None: ...

    @app.job
    def plain(ctx: holdfast.Context) -> str | None:
        ctx.follow_up(child.call())
        return child.enqueue().job_id

    @app.job
    async def coroutine() -> str | None:
        return (await child.enqueue_async()).job_id

    with memory_app(app) as bench:
        for job in (plain, coroutine):
            job.configure(traceparent=PARENT).enqueue()
        bench.drain()
        made = [job for job in bench.jobs() if job.spec.kind == "child"]

        assert len(made) == 3
        assert {(job.trace_id, job.traceparent) for job in made} == {(TRACE, PARENT)}
