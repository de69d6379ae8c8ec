"""Values that are invalid, or only seem to be: the method, the request, and the code of the response."""

from typing import Any, TypeAlias

from tests.server.raw_http_client import EVENTS, JOBS, REGISTRY

Case: TypeAlias = tuple[str, Any, str]
OK, INVALID, NO_JOB = "ok", "invalid_argument", "not_found"

NIL = "00000000-0000-0000-0000-000000000000"
UUID4 = "9b2f7a4e-3c1d-4f6a-8e5b-7d0c9a1b2e3f"
NO_UUIDS = [
    "x",
    "{9b2f7a4e-3c1d-4f6a-8e5b-7d0c9a1b2e3f}",
    "9b2f7a4e3c1d4f6a8e5b7d0c9a1b2e3f",
    "urn:uuid:9b2f7a4e-3c1d-4f6a-8e5b-7d0c9a1b2e3f",
    "9b2f7a4e-3c1d-4f6a-8e5b-7d0c9a1b2e3g",
    "9b2f7a4e-3c1d-4f6a-8e5b-7d0c9a1b2e3f\n",
    "\u0661" * 8 + "-1111-1111-1111-" + "\u0661" * 12,
    "../../etc/passwd",
    "a\u0000b",
    "'; DROP TABLE job;--",
    "x" * 100_000,
]
NO_NAMES = [
    "../x",
    "/etc",
    "C:\\x",
    "...",
    "a b",
    "a\r\nset-cookie: b",
    "*",
    "%",
    "a_%",
    "a'; DROP TABLE job;--",
    "\u202eevil",
    "caf\u00e9",
    "\U0001f600",
    "\u200b",
    "a\u0000b",
]
NAMES = ["__proto__", "a..b", "_", "CON", "a" * 128]

ENQUEUE_JOB: list[Case] = [
    ('{"queue":"a","nope":1,"jobParams":{"command":"t"}}', "nope", INVALID),
    ('{"jobParams":{"command":"t","shell":true}}', "shell", INVALID),
    ('{"jobParams":{"command":"a","command":"b"}}', "", OK),
    ("", "json", INVALID),
    ("{", "json", INVALID),
    ("null", "json", INVALID),
    ("[]", "json", INVALID),
    ('"' + "x" * 100_000 + '"', "json", INVALID),
    ("{}", "job_params", INVALID),
    ("{}x", "json", INVALID),
    ("[" * 100_000, "deep", INVALID),
    ("[" * 500_000 + "]" * 500_000, "deep", INVALID),
    ('{"queue":' + "[" * 100_000, "deep", INVALID),
    ('{"a":' * 100_000 + "1" + "}" * 100_000, "deep", INVALID),
    ('"' + '\\"' * 400_000 + "[" * 65, "json", INVALID),
    ('{"jobParams":{"command":"' + "[" * 1000 + '"}}', "", OK),
    ('{"queue":"\\ud800","jobParams":{"command":"t"}}', "json", INVALID),
    ('{"jobParams":{"command":"t\\u0000"}}', "NUL", INVALID),
    ('{"jobParams":{"command":"t","args":["\\u0000"]}}', "NUL", INVALID),
    ('{"jobParams":{"command":"t","environment":{"A=B":"x"}}}', "A=B", INVALID),
    ('{"jobParams":{"command":"t","metadata":{"a":"\\u0000"}}}', "NUL", INVALID),
    ('{"jobParams":{"command":"t","owner":"\\u0000"}}', "NUL", INVALID),
    ('{"jobParams":{"command":"t","owner":"\\u202e\\r\\n\U0001f600"}}', "", OK),
    ('{"jobParams":{"command":"t","timeoutSeconds":2147483648}}', "2147483648", INVALID),
    ('{"jobParams":{"command":"t","timeoutSeconds":2147483647}}', "3660 days", INVALID),
    ('{"jobParams":{"command":"t","timeoutSeconds":1.5}}', "1.5", INVALID),
    ('{"jobParams":{"command":"t","timeoutSeconds":NaN}}', "json", INVALID),
    ('{"jobParams":{"command":"t","processType":"NOPE"}}', "NOPE", INVALID),
    ('{"jobParams":{"command":"t","environment":{"a":1}}}', "string", INVALID),
    ('{"jobParams":{"container":{"mounts":[{"source":"../../etc"}]}}}', "", OK),
]

SPECS: list[tuple[dict[str, Any], str]] = [
    ({"payload": "nope"}, INVALID),
    ({"payload": "NaN"}, INVALID),
    ({"payload": "Infinity"}, INVALID),
    ({"payload": "1e999"}, INVALID),
    ({"payload": '"\\ud800"'}, INVALID),
    ({"payload": '"\\u0000 \\ud83d\\ude00"'}, OK),
    ({"payload": "[" * 64 + "]" * 64}, OK),
    ({"payload": "[" * 65 + "]" * 65}, INVALID),
    ({"payload": "[" * 100_000}, INVALID),
    ({"priority": "9223372036854775807"}, INVALID),
    ({"priority": 9007199254740993}, INVALID),
    ({"priority": "9007199254740993"}, INVALID),
    ({"priority": "9223372036854775808"}, INVALID),
    ({"priority": -1}, INVALID),
    ({"priority": "-0"}, OK),
    ({"promisedOutputs": "9223372036854775807"}, OK),
    ({"promisedOutputs": -1}, INVALID),
    ({"lease": "0s"}, INVALID),
    ({"lease": "-1s"}, INVALID),
    ({"lease": "315576000000s"}, INVALID),
    ({"lease": "315576000001s"}, INVALID),
    ({"timeout": "315576000000s"}, INVALID),
    ({"timeout": "0.0000001s"}, INVALID),
    ({"delay": "-0.5s"}, INVALID),
    ({"runAt": "0000-01-01T00:00:00Z"}, INVALID),
    ({"runAt": "0001-01-01T00:00:00Z"}, OK),
    ({"runAt": "9999-12-31T23:59:59.999999999Z"}, OK),
    ({"runAt": "10000-01-01T00:00:00Z"}, INVALID),
    ({"runAt": "2016-12-31T23:59:60Z"}, INVALID),
    ({"runAt": "2030-01-01T00:00:00+24:00"}, INVALID),
    ({"runAt": "2030-01-01"}, INVALID),
    ({"retry": {"factor": "NaN"}}, INVALID),
    ({"retry": {"factor": "Infinity"}}, INVALID),
    ({"retry": {"backoff": "315576000000s"}}, INVALID),
    ({"retry": {"onExhausted": "nope"}}, INVALID),
    ({"name": "x\u0000"}, INVALID),
    ({"name": "\u202e\r\n\U0001f600"}, OK),
    ({"labels": {"\u0000": "x"}}, INVALID),
]

CALLS: list[Case] = [
    (REGISTRY + "Claim", {"queues": [], "owner": "w"}, INVALID),
    (REGISTRY + "Claim", {"queues": ["q"]}, INVALID),
    (REGISTRY + "Claim", {"queues": ["q"], "owner": "w\r\nx"}, INVALID),
    (REGISTRY + "Claim", {"queues": ["q"], "owner": "w", "waitSeconds": "NaN"}, OK),
    (REGISTRY + "Claim", {"queues": ["q"], "owner": "w", "waitSeconds": "-Infinity"}, OK),
    (REGISTRY + "Claim", {"queues": ["q"], "owner": "w", "opId": "\u0000"}, INVALID),
    (REGISTRY + "Changes", {"mark": "x", "seconds": "NaN"}, OK),
    (REGISTRY + "ListJobs", {"after": "nope"}, INVALID),
    (REGISTRY + "ListJobs", {"after": "9" * 5000}, INVALID),
    (REGISTRY + "ListJobs", {"after": "\u0663"}, INVALID),
    (REGISTRY + "ListJobs", {"which": {"states": ["nope"]}}, INVALID),
    (REGISTRY + "ListJobs", {"which": {"queue": "%' OR 1=1 --"}}, OK),
    (REGISTRY + "ListJobs", {"which": {"labels": {"*": "[a-z]"}}}, OK),
    (REGISTRY + "Events", {"after": "1.5"}, INVALID),
    (REGISTRY + "Locks", {"key": "../x"}, OK),
    (REGISTRY + "Prune", {}, INVALID),
    (REGISTRY + "Prune", {"olderThan": "-1s"}, INVALID),
    (REGISTRY + "Prune", {"olderThan": "315576000000s"}, OK),
    (REGISTRY + "CreateKey", {"name": "x", "scopes": ["nope"]}, INVALID),
    (REGISTRY + "CreateKey", {"name": "a\r\nb", "scopes": ["work"]}, INVALID),
    (REGISTRY + "CreateKey", {"name": "k", "scopes": ["work"], "life": "-1s"}, INVALID),
    (REGISTRY + "RevokeKey", {"keyId": "x" * 100_000, "actor": "user:x"}, NO_JOB),
    (REGISTRY + "Record", {"events": [{}]}, INVALID),
    (REGISTRY + "Heartbeat", {}, INVALID),
    (REGISTRY + "Enqueue", {"requests": [{}], "actor": "user:x"}, INVALID),
    (JOBS + "ListJobs", {"page": -1}, INVALID),
    (JOBS + "ListJobs", {"page": 2147483647, "pageSize": 1000}, INVALID),
    (JOBS + "ListJobs", {"state": 99}, INVALID),
    (JOBS + "ListJobs", {"queue": "%"}, OK),
    (JOBS + "CompleteJob", {"taskToken": ""}, INVALID),
]

STREAMS: list[Case] = [
    (JOBS + "DequeueJob", {"maxJobs": 2147483648}, INVALID),
    (JOBS + "DequeueJob", {"workerId": "\r\n"}, INVALID),
    (JOBS + "DequeueJob", {"requestId": "x"}, INVALID),
    (JOBS + "DequeueJob", {"queue": "none", "maxJobs": -2147483648}, OK),
    (EVENTS + "PublishJobEvents", {"taskToken": "x"}, NO_JOB),
    (REGISTRY + "Watch", {"after": "x"}, INVALID),
    (REGISTRY + "Watch", {"jobId": "nope"}, NO_JOB),
]

POISON = ["[]", "1", '"x"', "null", '{"command":5}', '{"timeoutSeconds":99999999999}']
"""Payloads of job.v1 that no client of job.v1 could have sent."""

SAID: list[dict[str, Any]] = [
    {"eventType": "process_start", "attributes": '{"started_at":"garbage","pid":"x"}'},
    {"eventType": "process_end", "attributes": '{"seconds":1e300,"exit_code":99999999999999}'},
    {"eventType": "process_error", "attributes": '{"error_message":{"a":1}}'},
    {"eventType": "container_create", "attributes": '{"created_at":"2030-01-01T00:00:00"}'},
    {"eventType": "heartbeat", "attributes": '{"seconds":true,"process_alive":5}'},
    {
        "eventType": "output_batch",
        "data": "aGVsbG8=",
        "attributes": '{"items":[["stdout",5,99999999999999999999]],"playback_ms":99999999999}',
    },
    {
        "eventType": "output_batch",
        "data": "aGVsbG8=",
        "attributes": '{"items":[["stdout",5,9223372036854775807]],"playback_ms":true}',
    },
]
"""Worker events of holdfast.v1 that job.v1 has no proper words for."""
