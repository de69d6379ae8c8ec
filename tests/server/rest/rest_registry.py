"""A server and the calls of its REST clients, over a store whose time stands still."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from tests.server.raw_http_client import RawResponse, ThreadedServer, threaded_server
from tests.server.rest.rest_client import RestClient, result_of
from tests.server.running_server import no_expire_loop, outputs_in

MOMENT = "1970-01-01T00:00:01Z"


class RestRegistry:
    """A server, the clock of its store, and calls of `/v1` and of the façade `/registry`."""

    def __init__(self, server: ThreadedServer, clock: ManualClock) -> None:
        self.server = server
        self.clock = clock
        self.rest = RestClient(server)
        self._made = 0

    def enqueue(self, **spec: object) -> str:
        """Enqueue a job, in a queue of its own unless one is given."""
        self._made += 1
        asked = {"kind": "report", "queue": f"q-{self._made}", **spec}
        return str(result_of(self.rest.post("/v1/jobs", {"spec": asked}))["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(result_of(self.rest.get(f"/v1/jobs/{job_id}")))

    def status(self, job_id: str) -> dict[str, Any]:
        return dict(result_of(self.rest.get(f"/registry/job-status/{job_id}")))

    def events(self, job_id: str) -> list[dict[str, Any]]:
        return list(result_of(self.rest.get(f"/v1/jobs/{job_id}/logs"))["events"])

    def types(self, job_id: str) -> list[str]:
        return [str(one["event_type"]) for one in self.events(job_id)]

    def facade(self, path: str, job_id: str, worker: str, **more: object) -> RawResponse:
        """Make a call of `/registry`."""
        return self.rest.post(f"/registry/{path}", {"job_id": job_id, "worker_id": worker, **more})

    def acquire(self, job_id: str, worker: str, **more: object) -> int:
        """Acquire a job by `/registry`, and return the fencing token."""
        return int(result_of(self.facade("acquire-job", job_id, worker, **more))["fencing_token"])

    def take(self, job_id: str, owner: str, **more: object) -> dict[str, Any]:
        """Acquire a job by `/v1`, and return the grant."""
        asked = {"owner": owner, **more}
        return dict(result_of(self.rest.post(f"/v1/jobs/{job_id}/acquire", asked)))

    def act(self, verb: str, token: str, **more: object) -> RawResponse:
        return self.rest.post(f"/v1/grants/{verb}", {"task_token": token, **more})

    def promising(self, *names: str) -> str:
        """Complete a job that promised these outputs, and return its id."""
        job_id = self.enqueue(outputs={"names": names})
        self.act("complete", self.take(job_id, "w")["task_token"], success={})
        return job_id

    def partial(self, here: str, lacking: str) -> str:
        """Bring a job to a partial success, and return its id."""
        job_id = self.promising(here, lacking)
        asked = {
            "found": {"verified": 1, "missing": 1},
            "evidence": [{"name": lacking, "missing": "nobody wrote it"}],
        }
        judged = result_of(self.rest.post(f"/v1/jobs/{job_id}/validation/complete", asked))
        assert judged["state"] == "partial_success"
        return job_id

    def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds)
        result_of(self.rest.post("/v1/expire", {}))

    def tail(self) -> str:
        return str(result_of(self.rest.get("/v1/events/tail"))["cursor"])


def output(sequence: int) -> dict[str, Any]:
    return {"event_type": "output", "occurred_at": MOMENT, "sequence": sequence, "data": "aGk="}


@contextmanager
def open_rest_registry(outputs: Path) -> Iterator[RestRegistry]:
    clock = ManualClock()
    store = MemoryStore(clock, SystemIds())
    settings = ServerSettings(poll_seconds=0.0)
    opening = outputs_in(outputs)
    with no_expire_loop(), threaded_server(settings, store=store, opening=opening) as server:
        yield RestRegistry(server, clock)
        assert server.do(server.registry.verify()).equal
