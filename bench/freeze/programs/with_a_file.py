"""A queue of one job in an SQLite file: for the frame's own test. The variant `checks` compares the owner
when a job is finished, `trusts` does not. Whoever runs it touches a file, and writes nothing else until it
is done: frozen inside a transaction, it would lock the others out."""

import contextlib
import os
import sqlite3
import time

import handler

CHECKS = os.environ["FREEZE_VARIANT"] == "checks"
LEASE_SECONDS = 1.0
BEAT_SECONDS = 0.2
ALIVE = handler.FOLDER / "alive"


def run(statement, *values):
    path = handler.URL.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
        return file.execute(statement, values).fetchall()


def setup():
    run("PRAGMA journal_mode = WAL")  # who only looks is in nobody's way
    run("CREATE TABLE job (id INTEGER PRIMARY KEY, state, run INTEGER, result)")


def enqueue():
    [(job_id,)] = run("INSERT INTO job VALUES (NULL, 'queued', 0, NULL) RETURNING id")
    return str(job_id)


def work():
    ready = "SELECT id FROM job WHERE state = 'queued' OR (state = 'running' AND ?)"
    claim = "UPDATE job SET state = 'running', run = run + 1 WHERE id = ? RETURNING id, run"
    while True:
        for (found,) in run(ready, lapsed()):
            for job_id, number in run(claim, found):
                perform(job_id, number)
        time.sleep(BEAT_SECONDS)


def lapsed():
    return ALIVE.exists() and time.time() - ALIVE.stat().st_mtime > LEASE_SECONDS


def perform(job_id, number):
    ALIVE.touch()
    with handler.told(number, str(job_id)):
        while not handler.may_go():
            ALIVE.touch()
            time.sleep(BEAT_SECONDS)
    finish = "UPDATE job SET state = 'done', result = ? WHERE id = ?"
    if CHECKS:
        finish += f" AND run = {number}"
    run(finish, f"result of {handler.WORKER}", job_id)


def state(job_id):
    [(name, result)] = run("SELECT state, result FROM job WHERE id = ?", job_id)
    return {"name": name, "over": name == "done", "result": result}


if __name__ == "__main__":
    handler.main(
        settings=lambda: f"lease {LEASE_SECONDS:g} s",
        setup=setup,
        work=work,
        enqueue=enqueue,
        state=state,
    )
