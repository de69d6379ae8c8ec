"""A web application with jobs: a request creates one and returns at once, others ask how it is.

pip install -r requirements.txt
holdfast worker tasks:app &
uvicorn web:web

curl -s -d '{"text": "to be or not to be"}' -H 'content-type: application/json' localhost:8000/counts
curl -s localhost:8000/jobs/ID
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import holdfast
from tasks import app, count_words


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    """Open the store when the application starts, on its own loop, and close it at the end."""
    async with holdfast.AsyncClient(app.url) as client:
        web.state.jobs = client
        yield


web = FastAPI(lifespan=lifespan)


def client_of(request: Request) -> holdfast.AsyncClient:
    client: holdfast.AsyncClient = request.app.state.jobs
    return client


Jobs = Annotated[holdfast.AsyncClient, Depends(client_of)]


class Text(BaseModel):
    """What is to be counted. `request_id` makes the request safe to be sent again."""

    text: str
    request_id: str | None = None


class JobView(BaseModel):
    """What users of the application may know of a job."""

    job_id: str
    state: str
    done: int | None = None
    total: int | None = None
    result: Any = None
    reason: str | None = None


def view(job: holdfast.Job) -> JobView:
    found = JobView(job_id=job.job_id, state=job.state, result=job.result, reason=job.reason)
    if job.progress is not None:
        found.done, found.total = job.progress.done, job.progress.total
    return found


@web.post("/counts", status_code=202)
async def create(wanted: Text, jobs: Jobs, response: Response) -> JobView:
    handle = await jobs.enqueue(count_words.call(wanted.text), request_id=wanted.request_id)
    response.headers["location"] = f"/jobs/{handle.job_id}"
    return view(handle.job)


@web.get("/jobs/{job_id}")
async def read(job_id: str, jobs: Jobs) -> JobView:
    return view(await jobs.status(job_id))


@web.delete("/jobs/{job_id}")
async def cancel(job_id: str, jobs: Jobs) -> JobView:
    return view(await jobs.cancel(job_id, reason="its user has left"))


@web.get("/healthz")
async def health() -> str:
    return "ok"


STATUS = {holdfast.NotFound: 404, holdfast.Conflict: 409, holdfast.Invalid: 422, holdfast.Unavailable: 503}


@web.exception_handler(holdfast.HoldfastError)
async def refuse(_: Request, error: holdfast.HoldfastError) -> JSONResponse:
    """Return what a refused call says, in place of a 500."""
    return JSONResponse({"detail": str(error)}, STATUS.get(type(error), 500))
