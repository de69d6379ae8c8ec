"""An app for the failpoint scenarios: a job without output, and one with."""

import holdfast

app = holdfast.App()


@app.job
async def add(a: int, b: int) -> int:
    return a + b


@app.job
def shout() -> None:
    print("hello")  # noqa: T201  # its output is the point
