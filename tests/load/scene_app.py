"""An app for the scenes: a job that says nothing, and one that does."""

import holdfast

app = holdfast.App()


@app.job
async def add(a: int, b: int) -> int:
    return a + b


@app.job
def shout() -> None:
    print("hello")  # noqa: T201  # its output is the point
