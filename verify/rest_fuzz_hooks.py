"""What schemathesis is told about this API while it makes up requests: `SCHEMATHESIS_HOOKS` names this.

Only requests that keep to the description are touched. Waits are cut short, whole numbers are written as
such (`5`, not `5.0`), no two verbs share an op_id, the first request to an operation that needs something
to act on is a plain one, and every second request uses what an earlier answer has granted: no token that is
made up is ever a good one. All answers go to a file.
"""

import json
import os
from collections import deque
from itertools import count
from typing import Any

import schemathesis

from verify.rest_requests import plain

WAIT_SECONDS_MAX = 0.02
OUTCOMES = ("success", "failure", "stopped")
REVOKE = "/v1/keys/{key_id}/revoke"

_answers = open(os.environ["FUZZ_ANSWERS"], "a", encoding="utf-8")  # noqa: SIM115
_own_key_id = os.environ.get("FUZZ_KEY_ID")
_tokens: deque[str] = deque(maxlen=64)
_held: deque[dict[str, Any]] = deque(maxlen=64)
_pending: deque[str] = deque(maxlen=64)
_turn = count()
_begun: set[str] = set()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.path == REVOKE and (case.path_parameters or {}).get("key_id") == _own_key_id:
        case.path_parameters["key_id"] = "0" * 12  # who revokes its own key learns nothing more
    if isinstance(case.body, dict) and case.meta and case.meta.generation.mode.is_positive:
        if case.path not in _begun and (asked := plain(case.path)) is not None:
            case.body, named = asked
            case.path_parameters = {**(case.path_parameters or {}), **named}
            _begun.add(case.path)
            if case.headers:
                case.headers.pop("Idempotency-Key", None)
            return
        case.body = _whole(case.body)
        _shorten(case.body)
        _name(case.path.rpartition("/")[2], case.body, "op_id")
        _name(case.path.rpartition("/")[2], case.headers or {}, "Idempotency-Key")
        if (turn := next(_turn)) % 2:
            _use(case.path, case.body, case.path_parameters, turn)


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    _answers.write(json.dumps([case.method, case.path, response.status_code, response.text]) + "\n")
    _answers.flush()
    if response.status_code == 201 and case.path == "/v1/jobs":
        _pending.extend([response.json()["job_id"]] if case.body.get("register") else [])
    if response.status_code != 200:
        return
    if case.path == "/v1/grants":
        _tokens.extend(one["task_token"] for one in response.json()["grants"])
    elif case.path.endswith("/acquire"):
        _tokens.append(response.json()["task_token"])
    elif case.path == "/registry/acquire-job":
        named = {name: response.json()[name] for name in ("job_id", "fencing_token")}
        _held.append({**named, "worker_id": case.body["worker_id"]})


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    return int(value) if is_whole else value


def _shorten(body: dict[str, Any]) -> None:
    for name in ("wait_seconds", "seconds"):
        if name in body:
            body[name] = min(body[name], WAIT_SECONDS_MAX)
    if isinstance(body.get("claim"), dict):
        _shorten(body["claim"])


def _name(verb: str, where: Any, name: str) -> None:
    if isinstance(where.get(name), str):
        where[name] = f"{verb}.{where[name]}"[:124]


def _use(path: str, body: dict[str, Any], within: Any, turn: int) -> None:
    """Make and take jobs that there are, and act for a grant that there is; it ends in one way."""
    if path == "/v1/grants":
        body["queues"] = ["default"]
        for name in ("kinds", "region", "executor"):
            body.pop(name, None)
    elif path == "/v1/jobs":
        body |= {"register": turn % 4 == 1, "job_id": None, "request_id": None}
    elif path == "/registry/acquire-job":
        body |= {"create": True, "job_id": f"made-{turn}", "spec": None}
    elif path.endswith("/handoff") and _pending:
        body["step"] = "begin"
        within["job_id"] = _pending.pop()
    _hold(path, body)


def _hold(path: str, body: dict[str, Any]) -> None:
    ends = path.endswith(("/complete", "/complete-job", "/release", "/release-job"))
    if "task_token" in body and _tokens:
        body["task_token"] = _tokens.pop() if ends else _tokens[-1]
    elif {"fencing_token", "worker_id"} <= body.keys() and _held:
        body |= _held.pop() if ends else _held[-1]
    else:
        return
    body.pop("op_id", None)
    if path.endswith("/complete"):
        said = [name for name in OUTCOMES if name in body] or ["success"]
        body.setdefault(said[0], {})
        for name in said[1:]:
            del body[name]
