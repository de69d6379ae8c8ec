"""A worker and a submitter that speak REST, over a store whose time stands still."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rest_client import Rest, said
from wire_bad_client import Answer, Peer, peer

from holdfast.outputs.lazily import no_outputs
from holdfast.server.context import Settings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from wire_world import outputs_in

MOMENT = "1970-01-01T00:00:01Z"


class Play:
    """A server, its store, and what callers of it do."""

    def __init__(self, server: Peer, store: MemoryStore, clock: ManualClock) -> None:
        self.server = server
        self.store = store
        self.clock = clock
        self.rest = Rest(server)
        self._made = 0

    def enqueue(self, **spec: object) -> str:
        """A new job, in a queue of its own unless told."""
        self._made += 1
        asked = {"kind": "report", "queue": f"q-{self._made}", **spec}
        return str(said(self.rest.post("/v1/jobs", {"spec": asked}))["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(said(self.rest.get(f"/v1/jobs/{job_id}")))

    def status(self, job_id: str) -> dict[str, Any]:
        return dict(said(self.rest.get(f"/registry/job-status/{job_id}")))

    def events(self, job_id: str) -> list[dict[str, Any]]:
        return list(said(self.rest.get(f"/v1/jobs/{job_id}/log"))["events"])

    def types(self, job_id: str) -> list[str]:
        return [str(one["event_type"]) for one in self.events(job_id)]

    def front(self, path: str, job_id: str, worker: str, **more: object) -> Answer:
        """A call of `/registry`."""
        return self.rest.post(f"/registry/{path}", {"job_id": job_id, "worker_id": worker, **more})

    def acquire(self, job_id: str, worker: str, **more: object) -> int:
        """A fencing token from `/registry`."""
        return int(said(self.front("acquire-job", job_id, worker, **more))["fencing_token"])

    def take(self, job_id: str, owner: str, **more: object) -> dict[str, Any]:
        """A grant from `/v1`."""
        asked = {"owner": owner, **more}
        return dict(said(self.rest.post(f"/v1/jobs/{job_id}/acquire", asked)))

    def act(self, verb: str, token: str, **more: object) -> Answer:
        return self.rest.post(f"/v1/grants/{verb}", {"task_token": token, **more})

    def promising(self, *names: str) -> str:
        """A job that has ended, and promised these outputs."""
        job_id = self.enqueue(outputs={"names": names})
        self.act("complete", self.take(job_id, "w")["task_token"], success={})
        return job_id

    def partial(self, here: str, lacking: str) -> str:
        """A partial success."""
        job_id = self.promising(here, lacking)
        asked = {
            "found": {"verified": 1, "missing": 1},
            "evidence": [{"name": lacking, "missing": "nobody wrote it"}],
        }
        judged = said(self.rest.post(f"/v1/jobs/{job_id}/judge", asked))
        assert judged["state"] == "partial_success"
        return job_id

    def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds)
        said(self.rest.post("/v1/expire", {}))

    def tail(self) -> str:
        return str(said(self.rest.get("/v1/events/tail"))["cursor"])


def output(sequence: int) -> dict[str, Any]:
    return {"event_type": "output", "occurred_at": MOMENT, "sequence": sequence, "data": "aGk="}


@contextmanager
def playing(outputs: Path | None = None) -> Iterator[Play]:
    clock = ManualClock()
    store = MemoryStore(clock, SystemIds())
    opening = no_outputs if outputs is None else outputs_in(outputs)
    with peer(Settings(poll_seconds=0.0), store=store, opening=opening) as server:
        yield Play(server, store, clock)
        assert server.do(server.registry.verify()).equal
