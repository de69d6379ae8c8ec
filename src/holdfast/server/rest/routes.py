"""Routes: which path calls which verb. The handlers and the OpenAPI document are made from this table."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from holdfast.core.errors import Conflict, HoldfastError, NotFound
from holdfast.core.job import Job, ResourceLock
from holdfast.core.spec import Json
from holdfast.core.state import State
from holdfast.ports import (
    Announced,
    EventPage,
    Grant,
    HistoryPage,
    JobPage,
    OutputPage,
    PruneResult,
    Resumption,
    Verification,
)
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.rest import forms, output_forms
from holdfast.server.rest.log_form import LogsForm
from holdfast.server.rest.problems import Problem, problem
from holdfast.wire import requests, responses
from holdfast.wire.verbs import VERBS, VERBS_BY_NAME, Caller, Load, Verb


class Route(Struct, frozen=True, kw_only=True):
    """One path. A request is decoded as `form`, and `to_request` makes the request of the verb from it;
    `returns` is the type of the response. `idempotency_field` is what the header `Idempotency-Key` fills;
    without one, the content identifies the request: a token, sequences, ids of events."""

    method: str
    path: str
    verb: str
    summary: str
    form: type[Struct]
    returns: Any
    to_request: Callable[[Any], Any] = lambda form: form
    unwrap: Callable[[Any, Any], Any] = lambda form, response: response
    idempotency_field: str | None = None
    changes: bool = True
    status: int = 200
    operation: str | None = None
    load: Load | None = None
    text: bool = False

    def load_of(self, request: Any) -> Load:  # noqa: ANN401
        """What a call with this request costs: as its verb, unless the route has a load of its own."""
        return VERBS_BY_NAME[self.verb].load_of(request) if self.load is None else self.load

    def jobs_of(self, request: Any) -> int:  # noqa: ANN401
        """How many jobs a call with this request reads by their ids."""
        return VERBS_BY_NAME[self.verb].jobs_of(request) if self.load is None else 0

    @property
    def waits(self) -> bool:
        """Whether a call may take long by design."""
        return self.load is None and VERBS_BY_NAME[self.verb].waits

    @property
    def operation_id(self) -> str:
        """What generated clients name their method after: the verb, unless `operation` is set."""
        name = self.operation or self.verb
        return f"registry_{name}" if self.path.startswith("/registry/") else name

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields that are in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


class JobOrProblem(Struct, frozen=True):
    """A job, or the problem with it; neither if there is no such job."""

    job: Job | None = None
    error: Problem | None = None


class BatchResult(Struct, frozen=True):
    """One result for each item of the request, in order."""

    answers: tuple[JobOrProblem, ...]


def _job(_: Struct, response: responses.JobResponse) -> Job:
    return response.job


def _first_job(_: Struct, response: responses.JobList) -> Job:
    return response.jobs[0]


def _grant(_: Struct, response: responses.GrantResponse) -> Grant:
    return response.grant


def _one_job(form: requests.JobById, response: responses.BatchResponse) -> Job:
    [job] = response.answers
    if not isinstance(job, Job):
        raise NotFound(f"There is no job {form.job_id}.", job_id=form.job_id)
    return job


def _result(form: requests.JobById, response: responses.BatchResponse) -> Json:
    job = _one_job(form, response)
    admission.check_may_read(current_principal.get(), job)
    if job.state in (State.SUCCEEDED, State.PARTIAL_SUCCESS):
        return job.result
    if job.ended:
        words, advice = (
            f"has no result: it ended {job.state}",
            "Do not ask again: GET /v1/jobs/ID/why says what to do.",
        )
    else:
        words, advice = f"has no result yet: it is {job.state}", "Ask again later, or follow its stream."
    reason = f", {job.reason}" if job.reason else ""
    raise Conflict(
        f"Job {job.job_id} {words}{reason.rstrip('.')}.",
        job_id=job.job_id,
        version=job.version,
        advice=advice,
    )


def _batch_result(_: Struct, response: responses.BatchResponse) -> BatchResult:
    return BatchResult(tuple(map(_job_or_problem, response.answers)))


def _job_or_problem(one: Job | HoldfastError | None) -> JobOrProblem:
    if isinstance(one, HoldfastError):
        return JobOrProblem(error=problem(one))
    return JobOrProblem(job=one)


def _completed_job(_: Struct, response: responses.BatchResponse) -> Job:
    [job] = response.answers
    if isinstance(job, HoldfastError):
        raise job
    assert job is not None  # the completion of an unknown job raises
    return job


def _route(
    method: str, path: str, verb: str, form: type[Struct], returns: Any, summary: str, **more: Any  # noqa: ANN401
) -> Route:  # fmt: skip
    to_request = getattr(form, "to_request", lambda form: form)
    return Route(
        method=method, path=path, verb=verb, form=form, returns=returns, summary=summary,
        to_request=to_request, **more,
    )  # fmt: skip


_get = partial(_route, "GET", changes=False)
_post = partial(_route, "POST")


def _act(path: str, verb: str, form: type[Struct], summary: str, **more: Any) -> Route:  # noqa: ANN401
    """An action on a job, which returns the job."""
    options = {"unwrap": _job, "idempotency_field": "op_id", **more}
    return _post(path, verb, form, Job, summary, **options)


_ROUTES = (
    _post("/v1/jobs", "enqueue", forms.JobForm, Job, "Create a job.",
          unwrap=_first_job, idempotency_field="request_id", status=201),
    _post("/v1/jobs/batch", "enqueue", forms.JobBatchForm, responses.JobList, "Create jobs together.",
          idempotency_field="requests", status=201, operation="enqueue_many"),
    _get("/v1/jobs", "list_jobs", requests.ListJobs, JobPage, "List jobs, page by page."),
    Route(method="GET", path="/v1/jobs/{job_id}", verb="status", form=requests.JobById, returns=Job,
          changes=False, summary="Read a job.",
          to_request=lambda form: requests.Status(job_ids=(form.job_id,)), unwrap=_one_job),
    _post("/v1/jobs/status", "status", requests.Status, BatchResult, "Read jobs by their ids.",
          unwrap=_batch_result, changes=False, operation="status_many"),
    Route(method="GET", path="/v1/jobs/{job_id}/result", verb="status", form=requests.JobById, returns=Json,
          changes=False, summary="Read the result of a job.", operation="result",
          to_request=lambda form: requests.Status(job_ids=(form.job_id,)), unwrap=_result),
    _get("/v1/jobs/{job_id}/why", "why", requests.JobById, responses.Explanation,
         "Explain why a job is in its state."),
    _get("/v1/jobs/{job_id}/history", "history", requests.History, HistoryPage,
         "List the registry's events of a job, page by page."),
    _get("/v1/jobs/{job_id}/logs", "logs", LogsForm, EventPage,
         "List all events of a job, page by page; or its output as text.", text=True),
    _act("/v1/jobs/{job_id}/replay", "replay", requests.Replay, "Create a new job from a dead letter."),
    _post("/v1/jobs/{job_id}/acquire", "acquire", forms.AcquireForm, Grant, "Claim this job.",
          unwrap=_grant, idempotency_field="op_id"),
    _get("/v1/jobs/{job_id}/outputs", "list_outputs", requests.ListOutputs, OutputPage,
         "List the promised outputs of a job."),
    _act("/v1/jobs/{job_id}/validate", "validate", requests.Validate,
         "Validate the outputs of a job now.", idempotency_field=None),
    _post("/v1/jobs/{job_id}/resume", "resume", output_forms.ResumeForm, Resumption,
          "Create a job for the outputs that a job lacks.", idempotency_field="op_id"),
    _act("/v1/jobs/{job_id}/validation/report", "report_validation", requests.ReportValidation,
         "Report the progress of a validation.", idempotency_field=None),
    _act("/v1/jobs/{job_id}/validation/complete", "complete_validation",
         output_forms.CompleteValidationForm, "Complete a validation with its verdict."),
    _post("/v1/manifests", "store_manifest", output_forms.ManifestForm, responses.StoredManifest,
          "Store a manifest in the output store.", status=201),
    _get("/v1/counts", "counts", requests.Counts, responses.JobCounts, "Count jobs by state."),
    _post("/v1/grants", "claim", requests.Claim, responses.GrantList, "Claim jobs that are ready.",
          idempotency_field="op_id"),
    _act("/v1/grants/heartbeat", "heartbeat", forms.HeartbeatForm, "Renew the lease.",
         idempotency_field=None),
    _act("/v1/grants/publish", "publish", forms.PublishForm, "Publish worker events.",
         idempotency_field=None),
    _post("/v1/grants/complete", "complete", forms.CompletionForm, Job, "End an attempt.",
          unwrap=_completed_job, idempotency_field="op_id"),
    _post("/v1/grants/complete/batch", "complete", forms.CompletionsForm, BatchResult,
          "End attempts together.", unwrap=_batch_result,
          idempotency_field="completions", operation="complete_many"),
    _get("/v1/events", "events", requests.Events, EventPage, "List the events of all jobs, page by page."),
    _get("/v1/events/tail", "tail", requests.Empty, responses.EventCursor,
         "Return the cursor after the newest event."),
    _post("/v1/events", "record", forms.RecordForm, responses.RecordResult, "Record external events."),
    _get("/v1/locks/{key}", "locks", requests.Locks, ResourceLock, "Read who holds a lock."),
    _post("/v1/workers", "announce", requests.Announce, Announced, "Announce a worker.",
          changes=False),
    _get("/v1/workers", "workers", requests.Workers, responses.WorkerList, "List the workers."),
    _get("/v1/queues", "queues", requests.Empty, responses.QueueList, "List the queues and who serves them."),
    _post("/v1/changes", "changes", requests.Changes, responses.ChangeMark, "Wait for a change.",
          changes=False),
    _post("/v1/expire", "expire", requests.Expire, responses.ExpireResult, "Expire overdue leases."),
    _post("/v1/prune", "prune", requests.Prune, PruneResult, "Delete jobs that ended long ago."),
    _post("/v1/verify", "verify", requests.Empty, Verification,
          "Derive every job again from its events, and compare.", changes=False),
    _get("/v1/doctor", "doctor", requests.Empty, responses.DoctorReport, "Check the health of the store."),
    _get("/v1/now", "now", requests.Empty, responses.StoreTime, "Return the time of the store."),
    _get("/v1/keys", "list_keys", requests.Empty, responses.KeyList, "List keys."),
    _post("/v1/keys", "create_key", requests.CreateKey, responses.CreatedKey, "Create a key.",
          idempotency_field="op_id", status=201),
    _post("/v1/keys/{key_id}/revoke", "revoke_key", requests.RevokeKey, responses.RevokedKey,
          "Revoke a key."),
)  # fmt: skip


def _derived(verb: Verb) -> Route:
    """The route of a verb whose handler is derived as well: its request is the form, and describes it."""
    folder = "/v1/grants" if verb.caller is Caller.OWNER else "/v1/jobs/{job_id}"
    request = verb.request.value
    return _act(f"{folder}/{verb.name}", verb.name, request, inspect.getdoc(request) or verb.name)


_ROUTED = {route.verb for route in _ROUTES}
ROUTES = (*_ROUTES, *(_derived(verb) for verb in VERBS if verb.caller and verb.name not in _ROUTED))
"""Every path but the streams (`streams.py`) and `/registry` (`facade.py`)."""
