"""Routes: which path says which verb. Everything else about REST is made from this table."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.job import Job, Resource
from holdfast.ports import (
    Grant,
    HistoryPage,
    OutputPage,
    Page,
    Pruned,
    Resumption,
    Slice,
    Verification,
)
from holdfast.server.rest import forms, output_forms
from holdfast.server.rest.problems import Problem, problem
from holdfast.wire import answers, asks
from holdfast.wire.verbs import BY_NAME, Load


class Route(Struct, frozen=True, kw_only=True):
    """One path. `form` is what a request is read as, `ask` makes the verb's ask of it, `says` is what the
    answer is described as. `named` is the field that the header `Idempotency-Key` fills; where there is
    none, what is sent names itself: a token, sequences, ids of events."""

    method: str
    path: str
    verb: str
    summary: str
    form: type[Struct]
    says: Any
    ask: Callable[[Any], Any] = lambda form: form
    unwrap: Callable[[Any, Any], Any] = lambda form, answer: answer
    named: str | None = None
    changes: bool = True
    status: int = 200
    called: str | None = None
    load: Load | None = None

    def load_of(self, ask: Any) -> Load:  # noqa: ANN401
        """What a call with this ask costs: what its verb does, unless the route has another name for it."""
        return BY_NAME[self.verb].load_of(ask) if self.load is None else self.load

    def jobs_of(self, ask: Any) -> int:  # noqa: ANN401
        """How many jobs a call with this ask reads by their ids."""
        return BY_NAME[self.verb].jobs_of(ask) if self.load is None else 0

    @property
    def waits(self) -> bool:
        """Whether a call may take long by design."""
        return self.load is None and BY_NAME[self.verb].waits

    @property
    def name(self) -> str:
        """What a generated client calls it: its verb, where that says enough."""
        word = self.called or self.verb
        return f"registry_{word}" if self.path.startswith("/registry/") else word

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields that are in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


class Either(Struct, frozen=True):
    """A job, or why it was refused; neither where there is none."""

    job: Job | None = None
    error: Problem | None = None


class Each(Struct, frozen=True):
    """One for each that was asked for, in order."""

    answers: tuple[Either, ...]


def _asked(form: Any) -> Any:  # noqa: ANN401
    return form.ask()


def _job(_: Struct, answer: answers.OfJob) -> Job:
    return answer.job


def _made(_: Struct, answer: answers.OfJobs) -> Job:
    return answer.jobs[0]


def _grant(_: Struct, answer: answers.Acquired) -> Grant:
    return answer.grant


def _found(form: asks.OneJob, answer: answers.OfEach) -> Job:
    [job] = answer.answers
    if not isinstance(job, Job):
        raise NotFound(f"There is no job {form.job_id}.", job_id=form.job_id)
    return job


def _each(_: Struct, answer: answers.OfEach) -> Each:
    return Each(tuple(map(_either, answer.answers)))


def _either(one: Job | HoldfastError | None) -> Either:
    if isinstance(one, HoldfastError):
        return Either(error=problem(one))
    return Either(job=one)


def _ended(_: Struct, answer: answers.OfEach) -> Job:
    [job] = answer.answers
    if isinstance(job, HoldfastError):
        raise job
    assert job is not None  # who completes a job has it
    return job


def _get(path: str, verb: str, form: type[Struct], says: Any, summary: str) -> Route:  # noqa: ANN401
    return Route(
        method="GET", path=path, verb=verb, form=form, says=says, summary=summary, changes=False
    )


def _act(
    path: str, verb: str, form: type[Struct], summary: str, *, named: str | None = "op_id"
) -> Route:
    """Something done to a job, which answers with it."""
    ask = _asked if hasattr(form, "ask") else lambda form: form
    return Route(
        method="POST", path=path, verb=verb, form=form, says=Job, summary=summary,
        ask=ask, unwrap=_job, named=named,
    )  # fmt: skip


def _post(path: str, verb: str, form: type[Struct], says: Any, summary: str, **more: Any) -> Route:  # noqa: ANN401
    ask = _asked if hasattr(form, "ask") else lambda form: form
    return Route(
        method="POST", path=path, verb=verb, form=form, says=says, summary=summary, ask=ask, **more
    )


ROUTES = (
    _post("/v1/jobs", "enqueue", forms.JobForm, Job, "Make a job.",
          unwrap=_made, named="request_id", status=201, called="enqueue_job"),
    _post("/v1/jobs/batch", "enqueue", forms.ManyJobsForm, answers.OfJobs, "Make jobs together.",
          named="requests", status=201, called="enqueue_jobs"),
    _get("/v1/jobs", "list_jobs", asks.ListJobs, Page, "List jobs, page by page."),
    Route(method="GET", path="/v1/jobs/{job_id}", verb="get_jobs", form=asks.OneJob, says=Job,
          changes=False, summary="Read a job.", ask=lambda form: asks.GetJobs(job_ids=(form.job_id,)),
          unwrap=_found, called="get_job"),
    _post("/v1/jobs/find", "get_jobs", asks.GetJobs, Each, "Read many jobs.",
          unwrap=_each, changes=False),
    _get("/v1/jobs/{job_id}/why", "why", asks.OneJob, answers.Because, "Why it is where it is."),
    _get("/v1/jobs/{job_id}/history", "history", asks.History, HistoryPage,
         "What the registry has written about a job, page by page."),
    _get("/v1/jobs/{job_id}/log", "read_log", asks.ReadLog, Slice, "All that was said about a job."),
    _act("/v1/jobs/{job_id}/cancel", "cancel", asks.Cancel, "Cancel a job."),
    _act("/v1/jobs/{job_id}/replay", "replay", asks.Replay, "Make a new job of a dead letter."),
    _act("/v1/jobs/{job_id}/handoff", "handoff", asks.Handoff, "Hand a job to its executor."),
    _post("/v1/jobs/{job_id}/acquire", "acquire", forms.AcquireForm, Grant, "Take this very job.",
          unwrap=_grant, named="op_id"),
    _get("/v1/jobs/{job_id}/outputs", "list_outputs", asks.ListOutputs, OutputPage,
         "What a job promised, and whether it is there."),
    _act("/v1/jobs/{job_id}/validate", "validate", asks.Validate,
         "Look for the outputs of a job now.", named=None),
    _post("/v1/jobs/{job_id}/resume", "resume", output_forms.ResumeForm, Resumption,
          "Make a job of what a partial success lacks.", named="op_id"),
    _act("/v1/jobs/{job_id}/look", "look", asks.Look,
         "Say that one looks for the outputs of a job.", named=None),
    _act("/v1/jobs/{job_id}/judge", "judge", output_forms.JudgeForm,
         "Give the verdict on the outputs of a job."),
    _post("/v1/manifests", "keep_manifest", output_forms.ManifestForm, answers.Kept,
          "Keep a manifest in the output store.", status=201),
    _get("/v1/counts", "count_jobs", asks.CountJobs, answers.Counted, "Count jobs by state."),
    _post("/v1/grants", "claim", asks.Claim, answers.Granted, "Take jobs that are ready.",
          named="op_id"),
    _act("/v1/grants/heartbeat", "heartbeat", forms.HeartbeatForm, "Show a sign of life.",
         named=None),
    _act("/v1/grants/publish", "publish", forms.PublishForm, "Say something about an attempt.",
         named=None),
    _act("/v1/grants/aggregate", "aggregate", asks.Aggregate, "The tasks of an attempt are done."),
    _post("/v1/grants/complete", "complete", forms.CompletionForm, Job, "End an attempt.",
          unwrap=_ended, named="op_id"),
    _post("/v1/grants/complete/batch", "complete", forms.CompletionsForm, Each,
          "End attempts together.", unwrap=_each, named="completions", called="complete_all"),
    _act("/v1/grants/release", "release", asks.Release, "Give a job back."),
    _get("/v1/events", "read_feed", asks.ReadFeed, Slice, "All that was said about all jobs."),
    _get("/v1/events/tail", "tail", asks.Nothing, answers.Place, "Where the feed ends now."),
    _post("/v1/events", "record", forms.RecordForm, answers.Recorded, "Keep facts from elsewhere."),
    _get("/v1/locks/{key}", "get_resource", asks.GetResource, Resource, "Look at a lock."),
    _post("/v1/changes", "await_change", asks.AwaitChange, answers.Marked, "Wait for a change.",
          changes=False),
    _post("/v1/expire", "expire", asks.Expire, answers.Expired, "Close what has lapsed."),
    _post("/v1/prune", "prune", asks.Prune, Pruned, "Forget jobs that ended long ago."),
    _post("/v1/verify", "verify", asks.Nothing, Verification, "Derive every job from its log again.",
          changes=False),
    _get("/v1/doctor", "examine", asks.Nothing, answers.Examined, "How the store is."),
    _get("/v1/now", "now", asks.Nothing, answers.Time, "The store's time."),
    _get("/v1/keys", "list_keys", asks.Nothing, answers.AllKeys, "List keys."),
    _post("/v1/keys", "create_key", asks.CreateKey, answers.KeyMade, "Make a key.",
          named="op_id", status=201),
    _post("/v1/keys/{key_id}/revoke", "revoke_key", asks.RevokeKey, answers.KeyRevoked,
          "Let a key count no more."),
)  # fmt: skip
"""All but the streams, which are in `streams.py`, and `/registry`, which is in `facade.py`."""
