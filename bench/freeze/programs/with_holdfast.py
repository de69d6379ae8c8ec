"""holdfast: two `holdfast worker` processes on one store."""

import handler

import holdfast
from holdfast.core.state import ENDED

LEASE = "2s"
app = holdfast.App(handler.URL)


@app.job(max_crashes=5)
async def waits(ctx: holdfast.Context) -> str:
    return await handler.job_async(ctx.fencing_token)


def setup():
    """Opening a store makes it."""
    with holdfast.Client(handler.URL) as client:
        client.counts()


def work():
    spool = handler.FOLDER / f"spool-{handler.WORKER}"
    name = ["--name", handler.WORKER, "--spool", str(spool)]
    handler.script("holdfast", "worker", "with_holdfast:app", "--lease", LEASE, *name)


def state(job_id):
    with holdfast.Client(handler.URL) as client:
        job = client.get(job_id)
    return {"name": job.state, "over": job.state in ENDED, "result": job.result}


if __name__ == "__main__":
    handler.main(
        settings=lambda: f"`holdfast worker --lease {LEASE}`; everything else as it comes",
        setup=setup,
        work=work,
        enqueue=lambda: waits.enqueue().job_id,
        state=state,
    )
