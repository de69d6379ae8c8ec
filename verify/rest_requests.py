"""Requests for the operations that need a job in some state, or a grant. One of
each is made, so that no operation is left out by what happens to be made up."""

import json
import os
import urllib.request
from datetime import UTC, datetime
from itertools import count
from typing import Any

PARTIAL = ("partial-report", "partial-complete", "partial-resume")
"""Jobs that promised `a` and `b`, of which `b` is missing. They are made before."""
_TASK = {"bundle": f"sha256:{'0' * 64}", "entrypoint": "models.seir/baseline", "seed": 1}
_number = count(1)


def plain(path: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The body of such a request and what its path names; None for an operation that needs nothing."""
    last = path.rpartition("/")[2]
    if path == "/v1/manifests":
        return {"tasks": [_TASK]}, {}
    if path.startswith("/v1/jobs/{job_id}/"):
        return _of_job(last)
    if path.startswith("/v1/grants/") and last != "batch":
        return _of_grant(last), {}
    return None


def _of_job(last: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    match last:
        case "handoff":
            return {"step": "begin"}, {"job_id": _made(register=True)}
        case "acquire":
            return {"owner": "plain"}, {"job_id": _made()}
        case "report":
            return {"actor": "validator:plain"}, {"job_id": "partial-report"}
        case "complete":
            found = {"verified": 1, "missing": 1, "names": ["b"]}
            return {"found": found}, {"job_id": "partial-complete"}
        case "resume":
            return {
                "promise": {"names": ["b"], "store": os.environ["FUZZ_STORE_ID"]},
                "again": True,
            }, {"job_id": "partial-resume"}
    return None


def _of_grant(last: str) -> dict[str, Any]:
    grant = _post(f"/v1/jobs/{_made()}/acquire", {"owner": "plain"})
    body: dict[str, Any] = {"task_token": grant["task_token"]}
    if last == "complete":
        body["success"] = {}
    elif last == "publish":
        now = datetime.now(UTC).isoformat()
        body["events"] = [{"event_type": "output", "occurred_at": now, "sequence": 1, "data": "aGk="}]
    return body


def _made(*, register: bool = False) -> str:
    job_id = f"plain-{os.getpid()}-{next(_number)}"
    spec = {"kind": "plain", "queue": "plain"}
    return str(_post("/v1/jobs", {"spec": spec, "job_id": job_id, "register": register})["job_id"])


def _post(path: str, body: dict[str, Any]) -> Any:
    headers = {"content-type": "application/json"}
    if key := os.environ.get("FUZZ_KEY"):
        headers["authorization"] = f"Bearer {key}"
    url, data = os.environ["FUZZ_ADDRESS"] + path, json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)
