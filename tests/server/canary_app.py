"""An app whose jobs hold canaries, and end in every way there is."""

import os

import holdfast

app = holdfast.App()

ONCE = holdfast.Retry(max_failures=1, max_crashes=1)


class Odd:
    """A value that cannot be written as JSON."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __repr__(self) -> str:
        return self.what


@app.job(retry=ONCE, lease=5)
def job(ctx: holdfast.Context, how: str, canary: str, number: int = 0) -> object:
    """Log all the canaries, and end in the way that `how` names."""
    ctx.log.info("canary-in-output-%s", canary)
    print(f"canary-in-output-{canary}")  # noqa: T201
    ctx.emit("seen", what=f"canary-in-output-{canary}")
    ctx.checkpoint({"at": f"canary-in-checkpoint-{canary}"})
    if how == "fail":
        raise holdfast.PermanentError("it cannot be done")
    if how == "validation":
        raise holdfast.ValidationError("it is not as it should be")
    if how == "unwritable":
        return Odd(f"canary-in-result-{canary}")
    if how == "snooze":
        raise holdfast.Snooze(3600)
    if how == "crash":
        os._exit(66)
    if how in ("time", "cancel"):
        ctx.wait_cancelled(60)
        ctx.check()  # a handler that returns all the same has succeeded
    return {"sum": f"canary-in-result-{canary}"}
