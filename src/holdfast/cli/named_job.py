"""The job that a person means: by its id, a short form of it, its name, or @last."""

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import zip_longest

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.job_view import title
from holdfast.cli.options import newest_wanted
from holdfast.cli.session import filled_page
from holdfast.cli.terminal import age, shorten
from holdfast.cli.terminal_escape import plain
from holdfast.core.errors import Invalid, NotFound
from holdfast.core.job import Job
from holdfast.core.short_ids import SHORT_ID_CHARACTERS_MIN, is_shown, is_whole, short_id
from holdfast.ports import JobFilter, Registry

LAST = "@last"
NAMED_PAGES_MAX = 20
"""How many pages of the newest jobs are searched for a name; a store looks at 5,000 jobs for each."""
CANDIDATES_MAX = 10
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")


async def job_id_of(registry: Registry, text: str) -> str:
    """Return the id of the job that is meant. Raise `NotFound` for none, `AmbiguousJob` for several.

    An exact id wins. @last is the newest job that the caller may see."""
    if is_whole(text):
        return text
    if text.startswith("@"):
        return await _last(registry, text)
    if _ID.match(text) and (found := (await registry.status_many([text]))[0]) is not None:
        return found.job_id
    jobs = await _fitting(registry, text)
    if not jobs:
        raise NotFound(f"There is no job {text}.", job_id=text)
    if len(jobs) > 1 and not newest_wanted():
        raise AmbiguousJob(text, jobs, await registry.now())
    return jobs[0].job_id


async def job_ids_of(registry: Registry, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the jobs that are meant, each once. A text that means none stays as it is: the
    command on it is refused."""
    loose = [text for text in texts if not is_whole(text)]
    exact = [text for text in loose if _ID.match(text)]
    known = {job.job_id for job in await registry.status_many(exact) if job} if exact else set[str]()
    found: dict[str, str] = {}
    for text in loose:
        if text not in known:
            try:
                found[text] = await job_id_of(registry, text)
            except NotFound:
                if not _ID.match(text):
                    raise
    return tuple(dict.fromkeys(found.get(text, text) for text in texts))


async def _last(registry: Registry, text: str) -> str:
    if text != LAST:
        raise Invalid(f"There is no {text}.", advice=f"{LAST} is the newest job; ids and names have no @.")
    page = await filled_page(registry, JobFilter(), None, 1, newest=True)
    if not page.jobs:
        raise NotFound("There are no jobs yet.", advice="Submit one: holdfast submit -- echo hello")
    return page.jobs[0].job_id


async def _fitting(registry: Registry, text: str) -> list[Job]:
    """Return the jobs whose id or name fits, the newest first, a few more than are shown."""
    by_id: Sequence[Job] = ()
    if len(text) >= SHORT_ID_CHARACTERS_MIN and _ID.match(text):
        which = JobFilter(short_id=text)
        by_id = (await registry.list_jobs(which, limit=CANDIDATES_MAX + 1, newest=True)).jobs
    by_name = () if by_id and is_shown(text) else await _with_name(registry, text)
    found = {job.job_id: job for job in (*by_id, *by_name)}
    return sorted(found.values(), key=lambda job: job.created_at, reverse=True)


async def _with_name(registry: Registry, name: str) -> list[Job]:
    """Return the newest jobs of this name, among so many."""
    found: list[Job] = []
    cursor: str | None = None
    for _ in range(NAMED_PAGES_MAX):
        page = await registry.list_jobs(
            JobFilter(name=name), after=cursor, limit=CANDIDATES_MAX + 1, newest=True
        )
        found += page.jobs
        cursor = page.next
        if cursor is None or len(found) > CANDIDATES_MAX or (found and newest_wanted()):
            break
    return found


class AmbiguousJob(click.ClickException):
    """Several jobs fit what was typed; they are listed."""

    exit_code = ExitCode.INVALID.value

    def __init__(self, text: str, jobs: Sequence[Job], now: datetime) -> None:
        many = f"More than {CANDIDATES_MAX}" if len(jobs) > CANDIDATES_MAX else str(len(jobs))
        super().__init__(f"{many} jobs fit {plain(text)}. Name one by its id, or take the newest: --newest")
        self._lines = [
            (short_id(job.job_id), str(job.state), age(now - job.created_at), shorten(title(job), 40))
            for job in jobs[:CANDIDATES_MAX]
        ]

    def show(self, file: object = None) -> None:
        click.echo(f"Error: {self.message}", err=True)
        widths = [max(map(len, column)) for column in zip_longest(*self._lines, fillvalue="")]
        for line in self._lines:
            cells = [f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)]
            click.echo(f"  {'  '.join(cells).rstrip()}", err=True)
