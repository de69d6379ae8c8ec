"""An app in a module, which another process can import."""

import os

import holdfast

app = holdfast.App()


@app.job
def where() -> int:
    return os.getpid()


@app.job(isolation="process")
def apart() -> int:
    return os.getpid()
