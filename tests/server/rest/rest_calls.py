"""Every route of REST, called with real arguments about one job."""

from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from holdfast.server.context import ServerSettings
from holdfast.system import SystemIds
from tests.server.access_calls import TASK
from tests.server.keyed_server import (
    LAST_SEQUENCE,
    NAMES,
    QUEUE,
    REGION,
    KeyedServer,
    Subject,
    canary,
)
from tests.server.raw_http_client import ThreadedServer
from tests.server.rest.rest_client import RestClient, StreamEvent, result_of

Body: TypeAlias = Callable[[Subject], Any]
Found: TypeAlias = Callable[[Subject, Any], int | bool]

KEYS = ServerSettings(keys=True, poll_seconds=0.0)
WORDS = {401: "unauthenticated", 403: "permission_denied", 404: "not_found"}
MOMENT = "1970-01-01T00:00:01Z"
SPEC = {"kind": "report", "queue": QUEUE, "region": REGION}
CLAIM = {"queues": [QUEUE], "owner": "w-1", "limit": 100}


class RouteCall(Struct, frozen=True):
    """How a route is called, and its row in the table of access. `found` tells whether the response has the
    job (a job that it leaves out counts as not found), or the status that is in the response."""

    row: str
    method: str
    route: str
    state: str = "running"
    body: Body | None = None
    found: Found = lambda subject, told: True
    query: str = ""

    def path(self, subject: Subject) -> str:
        path = self.route
        for name in ("job_id", "key_id"):
            path = path.replace(f"{{{name}}}", getattr(subject, name))
        query = self.query.replace("{cursor}", quote(subject.cursor)).replace("{lock}", subject.lock)
        return path.replace("{key}", subject.lock) + query

    def ask(self, caller: RestClient, subject: Subject, state: str) -> tuple[str, bytes]:
        """Return the outcome: `ok`, or the code of the refusal; and everything that came back."""
        if self.route.endswith("/stream"):
            return self._listen(caller, subject, state)
        if self.body is None:
            answer = caller.ask(self.method, self.path(subject))
        else:
            answer = caller.post(self.path(subject), self.body(subject))
        if answer.status >= 300:
            return WORDS.get(answer.status, str(answer.status)), answer.body
        found = self.found(subject, result_of(answer))
        if found is True:
            return "ok", answer.body
        return WORDS.get(found or 404, str(found)), answer.body

    def _listen(self, caller: RestClient, subject: Subject, state: str) -> tuple[str, bytes]:
        with caller.stream(self.path(subject)) as stream:
            if stream.status != 200:
                return WORDS.get(stream.status, str(stream.status)), stream.answer().body
            heard: list[StreamEvent] = []
            for one in stream:
                heard.append(one)
                last = one.data and (
                    one.name == "job_succeeded"
                    if state == "ended"
                    else one.json()["sequence"] == LAST_SEQUENCE
                )
                if one.comment == "alive" or last:
                    break
        about = any(one.data and one.json().get("job_id") == subject.job_id for one in heard)
        return "ok" if about else "not_found", "\n".join(map(repr, heard)).encode()


class KeyedRestServer(Struct, frozen=True):
    """A server that asks for keys, and callers of every kind."""

    server: ThreadedServer
    keyed: KeyedServer

    def caller(self, name: str) -> RestClient:
        return RestClient(self.server, self.keyed.keys[name])

    def subject(self, owner: str, state: str, caller: str = "") -> Subject:
        made: Subject = self.server.do(self.keyed.subject(owner, state))
        told: Subject = self.server.do(self.keyed.held_by(caller, made))
        return told

    def free(self, subject: Subject) -> None:
        self.server.do(self.keyed.free(subject))


def job(subject: Subject, told: Any) -> bool:  # noqa: ANN401
    return bool(told["job_id"] == subject.job_id)


def among_jobs(subject: Subject, told: Any) -> bool:  # noqa: ANN401
    return any(job(subject, one) for one in told["jobs"])


def among_events(subject: Subject, told: Any) -> bool:  # noqa: ANN401
    return any(job(subject, one) for one in told["events"])


def resumed(subject: Subject, told: Any) -> bool:  # noqa: ANN401
    return bool(told["job"]["spec"]["resumed_from"] == subject.job_id)


def granted(subject: Subject, told: Any) -> bool:  # noqa: ANN401
    return any(job(subject, one["job"]) for one in told["grants"])


def each(subject: Subject, told: Any) -> int | bool:  # noqa: ANN401
    [one] = told["answers"]
    if one["error"] is not None:
        return int(one["error"]["status"])
    return one["job"] is not None and job(subject, one["job"])


def holder(subject: Subject, told: Any) -> bool:  # noqa: ANN401
    return bool(told["holder"] == subject.job_id)


def token(subject: Subject) -> Any:  # noqa: ANN401
    return {"task_token": subject.token}


def done(subject: Subject) -> Any:  # noqa: ANN401
    return token(subject) | {"success": {"result": canary("result")}}


def output(subject: Subject) -> Any:  # noqa: ANN401
    told = {"event_type": "output", "occurred_at": MOMENT, "sequence": 100, "stream": "stdout"}
    return token(subject) | {"events": [told | {"data": "aGk="}]}


def fact(job_id: str | None) -> Any:  # noqa: ANN401
    told = {"event_id": SystemIds().new(), "event_type": "invoice_sent", "occurred_at": MOMENT}
    return {"events": [told | {"job_id": job_id}]}


def new_key(_: Subject) -> Any:  # noqa: ANN401
    name = f"{QUEUE}:spare-{SystemIds().new()}"
    return {"name": name, "scopes": ["admin:keys"], "queues": [QUEUE]}


def nothing(_: Subject) -> Any:  # noqa: ANN401
    return {}


def _get(row: str, route: str, found: Found = lambda one, told: True, query: str = "") -> RouteCall:
    return RouteCall(row, "GET", route, found=found, query=query)


def _post(
    row: str, route: str, body: Body, state: str = "running", found: Found = lambda one, told: True
) -> RouteCall:
    return RouteCall(row, "POST", route, state, body, found)


OWNER_CALLS = (
    _post("Enqueue", "/v1/jobs", lambda _: {"spec": SPEC}),
    _post("Enqueue", "/v1/jobs/batch", lambda _: {"requests": [{"spec": SPEC}]}),
    _post("Handoff", "/v1/jobs/{job_id}/handoff", lambda _: {"step": "begin"}, "registered", job),
    _post("Replay", "/v1/jobs/{job_id}/replay", nothing, "dead"),
    _post("Claim", "/v1/grants", lambda _: CLAIM | {"region": REGION}, "queued", granted),
    _post("Claim of any region", "/v1/grants", lambda _: CLAIM, "queued", granted),
    _post("Acquire", "/v1/jobs/{job_id}/acquire", lambda _: {"owner": "w-1"}, "queued",
          lambda one, told: job(one, told["job"])),
    _post("Heartbeat", "/v1/grants/heartbeat", token, found=job),
    _post("Publish", "/v1/grants/publish", output, found=job),
    _post("Aggregate", "/v1/grants/aggregate", token, found=job),
    _post("Complete", "/v1/grants/complete", done, found=job),
    _post("Complete", "/v1/grants/complete/batch", lambda one: {"completions": [done(one)]},
          found=each),
    _post("Release", "/v1/grants/release", token, found=job),
    _post("Cancel", "/v1/jobs/{job_id}/cancel", nothing, found=job),
)  # fmt: skip

OUTPUT_CALLS = (
    _post("ReportValidation", "/v1/jobs/{job_id}/validation/report", nothing, "validating", job),
    _post("CompleteValidation", "/v1/jobs/{job_id}/validation/complete",
          lambda _: {"found": {"verified": len(NAMES)}}, "validating", job),
    _post("CompleteValidation overriding", "/v1/jobs/{job_id}/validation/complete",
          lambda _: {"override": "succeeded", "reason": "it is there"}, "validating", job),
    RouteCall("ListOutputs", "GET", "/v1/jobs/{job_id}/outputs", "partial", query="?missing=true"),
    _post("Validate", "/v1/jobs/{job_id}/validate", nothing, "validating", job),
    _post("Resume", "/v1/jobs/{job_id}/resume", nothing, "partial", resumed),
    _post("Resume as told", "/v1/jobs/{job_id}/resume",
          lambda _: {"promise": {"names": ["table"], "store": "elsewhere"}}, "partial", resumed),
    _post("StoreManifest", "/v1/manifests", lambda _: {"tasks": [TASK]}),
)  # fmt: skip

READ_CALLS = (
    _get("Status", "/v1/jobs/{job_id}", job),
    _post("Status", "/v1/jobs/status", lambda one: {"job_ids": [one.job_id]}, found=each),
    _get("ListJobs", "/v1/jobs", among_jobs, "?labels[lock]={lock}"),
    _get("Counts", "/v1/counts", query=f"?queue={QUEUE}"),
    _get("Counts of all", "/v1/counts"),
    _get("Why", "/v1/jobs/{job_id}/why"),
    _get("History", "/v1/jobs/{job_id}/history", among_events),
    _get("Logs", "/v1/jobs/{job_id}/logs", among_events),
    _get("Events", "/v1/events", among_events, "?after={cursor}"),
    _get("Tail", "/v1/events/tail"),
    _get("Watch", "/v1/jobs/{job_id}/stream"),
    _get("Watch of all", "/v1/events/stream", query="?after={cursor}"),
    _get("Locks", "/v1/locks/{key}", holder),
    _post("Announce", "/v1/workers",
          lambda _: {"name": "w-1", "instance": "1", "queues": [QUEUE], "region": REGION}),
    _get("Workers", "/v1/workers"),
    _get("Queues", "/v1/queues"),
    _post("Changes", "/v1/changes", lambda one: {"job_id": one.job_id}),
    _post("Changes of all", "/v1/changes", nothing),
    _post("Changes for a claim", "/v1/changes",
          lambda _: {"claim": CLAIM | {"region": REGION}}),
)  # fmt: skip

ADMIN_CALLS = (
    _post("Record", "/v1/events", lambda one: fact(one.job_id)),
    _post("Record about no job", "/v1/events", lambda _: fact(None)),
    _post("Expire", "/v1/expire", nothing),
    _post("Prune", "/v1/prune", lambda _: {"older_than": "P1157D"}),
    _post("Verify", "/v1/verify", nothing),
    _get("Doctor", "/v1/doctor"),
    _get("Now", "/v1/now"),
    _post("CreateKey", "/v1/keys", new_key),
    _get("ListKeys", "/v1/keys"),
    _post("RevokeKey", "/v1/keys/{key_id}/revoke", nothing, "key"),
)

ROUTE_CALLS = OWNER_CALLS + OUTPUT_CALLS + READ_CALLS + ADMIN_CALLS
