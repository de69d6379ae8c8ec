"""A queue of one job in an SQLite file: for the frame's own test. The variant `checks` compares the owner
when a job is finished, `trusts` does not."""

import contextlib
import os
import sqlite3
import time

import handler

CHECKS = os.environ["FREEZE_VARIANT"] == "checks"
LEASE_SECONDS = 1.0
BEAT_SECONDS = 0.2


def run(statement, *values):
    path = handler.URL.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
        return file.execute(statement, values).fetchall()


def setup():
    run("CREATE TABLE job (id INTEGER PRIMARY KEY, state, run INTEGER, seen REAL, result)")


def enqueue():
    [(job_id,)] = run("INSERT INTO job VALUES (NULL, 'queued', 0, 0, NULL) RETURNING id")
    return str(job_id)


def work():
    claim = """UPDATE job SET state = 'running', run = run + 1, seen = ? WHERE id = (SELECT id FROM job
        WHERE state = 'queued' OR (state = 'running' AND seen < ?) LIMIT 1) RETURNING id, run"""
    while True:
        for job_id, number in run(claim, time.time(), time.time() - LEASE_SECONDS):
            perform(job_id, number)
        time.sleep(BEAT_SECONDS)


def perform(job_id, number):
    with handler.told(number, str(job_id)):
        while not handler.may_go():
            run("UPDATE job SET seen = ? WHERE id = ? AND run = ?", time.time(), job_id, number)
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
