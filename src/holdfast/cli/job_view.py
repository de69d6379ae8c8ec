"""A job in words: what it runs, how it stands, what came of it."""

import shlex
from collections.abc import Callable
from datetime import datetime, timedelta

import click
import msgspec
from msgspec import Struct
from msgspec.structs import fields

from holdfast.cli.output_summary import is_cached, missing_names, output_counts, validation_status
from holdfast.cli.terminal import clock, on_terminal
from holdfast.cli.terminal_escape import safe_text
from holdfast.core.arguments import describe_call
from holdfast.core.catalogue import EventType
from holdfast.core.explanation import format_duration
from holdfast.core.job import Job
from holdfast.core.process_spec import process_spec_of
from holdfast.core.short_ids import short_id
from holdfast.core.spec import PRIORITY_DEFAULT, Spec
from holdfast.core.state import State
from holdfast.ports import Registry
from holdfast.runner.stored_result import where_stored

Facts = list[tuple[str, str | None]]
_PAGE = 200


def title(job: Job) -> str:
    """Return the name of a job, else its command, else its function with its arguments."""
    return job.spec.name or command_line(job) or describe_call(job.spec)


def shown_id(job_id: str) -> str:
    """Return the id as a table has it: short on a terminal, whole in a pipe."""
    return short_id(job_id) if on_terminal() else job_id


def call(job: Job) -> str | None:
    """Return the function of a job with its arguments; None for a command, and where they are hidden."""
    shown = describe_call(job.spec)
    return None if shown == job.spec.kind else shown


def program_name(job: Job, redact: Callable[[bytes], bytes]) -> str:
    """Return the name of a job, else its program, else its function with its arguments, for a log: secrets
    are redacted in the payload, before it is shortened."""
    if job.spec.name:
        return job.spec.name
    command = process_spec_of(job.spec)
    return describe_call(job.spec, redact(bytes(job.spec.payload))) if command is None else command.argv[0]


def command_line(job: Job) -> str | None:
    """Return the command as a user would type it; None for other kinds of work."""
    command = process_spec_of(job.spec)
    return None if command is None else shlex.join(command.argv)


def _command(job: Job) -> Facts:
    """Return where and with what the command runs: names of variables and secrets, never values."""
    command, timeout = process_spec_of(job.spec), job.spec.timeout
    if command is None:
        return []
    return [
        ("Folder", command.cwd),
        ("Variables", ", ".join(sorted(command.env))),
        ("Secrets", ", ".join(command.secrets)),
        ("Timeout", format_duration(timeout) if timeout else None),
    ]


def job_facts(
    job: Job,
    now: datetime,
    *,
    why: str,
    links: "Links",
    took: timedelta | None,
    cost: str | None = None,
) -> Facts:
    """Return all facts about one job, in the order people ask for them; `took` is how long its last
    attempt took, from claim to end."""
    spec = job.spec
    priority = "" if spec.priority == PRIORITY_DEFAULT else f", priority {spec.priority}"
    return [
        ("Job", job.job_id),
        ("State", f"{job.state}, attempt {job.attempt}"),
        ("Name", spec.name),
        ("Command" if command_line(job) else "Kind", command_line(job) or spec.kind),
        ("Call", call(job)),
        *_command(job),
        ("Queue", f"{spec.queue}{priority}"),
        ("Executor", spec.executor),
        (
            "Handle",
            ", ".join(f"{key}={value}" for key, value in sorted((job.handle or {}).items())),
        ),
        *_ownership(job, now),
        ("Budget", _budget(job)),
        ("Progress", _progress(job)),
        *_times(job, now, took),
        ("Cost", cost),
        *_ending(job),
        *_outputs(job, now),
        ("Labels", ", ".join(f"{key}={value}" for key, value in sorted(spec.labels.items()))),
        ("Correlation", job.correlation_id),
        ("Replay of", spec.replayed_from),
        ("Replayed as", ", ".join(links.replayed)),
        ("Resumes", spec.resumed_from),
        ("Resumed as", ", ".join(links.resumed)),
        ("Why", why),
    ]


_TEXTS = sorted(
    {one.name for one in fields(Spec) if one.type == str | None}
    - {"name", "executor", "replayed_from", "resumed_from"}  # they have a place of their own
)
"""Fields of the spec that are shown as they are: the lock and the region, and any new text."""


def _ownership(job: Job, now: datetime) -> Facts:
    facts: Facts = [(name.replace("_", " ").capitalize(), getattr(job.spec, name)) for name in _TEXTS]
    if job.lease is None:
        return [*facts, ("Token", f"{job.fencing_token} (last)" if job.fencing_token else None)]
    left = job.lease.expires_at - now
    lapsed = "lapsed: the next claim takes the job"
    ends = f"ends in {format_duration(left)}" if left.total_seconds() > 0 else lapsed
    seen = f"last heartbeat {format_duration(now - job.lease.heartbeat_at)} ago"
    asked = f"requested by {job.cancel.actor} at {clock(job.cancel.requested_at)}" if job.cancel else None
    return [
        *facts,
        ("Owner", job.owner),
        ("Token", str(job.fencing_token)),
        ("Lease", f"{ends}; {seen}{'; suspected lost' * job.lease.suspected}"),
        ("Cancel", asked),
    ]


def _budget(job: Job) -> str:
    retry = job.spec.retry
    return (
        f"{job.failures} of {retry.max_failures} failures,"
        f" {job.crashes} of {retry.max_crashes} crashes; then {retry.on_exhausted}"
    )


def _progress(job: Job) -> str | None:
    if job.progress is None:
        return None
    total = f" of {job.progress.total}" if job.progress.total is not None else ""
    return f"{job.progress.done}{total} {job.progress.message or ''}".strip()


def _times(job: Job, now: datetime, took: timedelta | None) -> Facts:
    by = f" by {job.submitted_by}" if job.submitted_by else ""
    running = f" (for {format_duration(took)})" if took is not None and job.leased else ""
    after = f" after {format_duration(took)}" if took is not None else ""
    return [
        ("Created", f"{clock(job.created_at)}{by}"),
        ("Ready at", clock(job.ready_at) if job.ready_at > now and not job.ended else None),
        ("Deadline", clock(job.deadline_at)),
        ("Started", f"{clock(job.started_at)}{running}" if job.started_at else None),
        ("Ended", f"{clock(job.ended_at)}{after}" if job.ended_at else None),
    ]


def _ending(job: Job) -> Facts:
    error = job.error
    code = exit_code(job)
    return [
        ("Exit code", None if code is None else str(code)),
        (
            "Error" if job.ended else "Last error",
            f"{error.code}: {error.message}" if error else None,
        ),
        (
            "Reason",
            job.reason if job.reason and (not error or job.reason != error.summary) else None,
        ),
        ("Result", _result(job)),
    ]


def print_traceback(job: Job) -> None:
    """Print the traceback of the job's last failure, if it has one."""
    if job.error is not None and job.error.traceback is not None:
        click.echo(f"\n{safe_text(job.error.traceback)}")


def _outputs(job: Job, now: datetime) -> Facts:
    return [
        ("Outputs", output_counts(job)),
        ("Missing", missing_names(job)),
        # While it is being validated, `Why` says so.
        ("Validation", None if job.state is State.VALIDATING else validation_status(job, now)),
        ("Cached", "nothing was run: its outputs were there already" if is_cached(job) else None),
    ]


def _result(job: Job) -> str | None:
    """Return the result as JSON, or where it is if it is large; None if it is only the exit code."""
    if job.result is None or (isinstance(job.result, dict) and job.result.keys() == {"exit_code"}):
        return None
    if is_cached(job):
        return None
    return where_stored(job.result) or msgspec.json.encode(job.result).decode()


def exit_code(job: Job) -> int | None:
    """Return the exit code of the last attempt that reported one."""
    if job.error is not None:
        return job.error.exit_code
    code = job.result.get("exit_code") if isinstance(job.result, dict) else None
    return code if isinstance(code, int) else None


class Links(Struct):
    """The ids of the jobs that replay a job, and of those that resume it."""

    replayed: list[str] = []
    resumed: list[str] = []


async def links_of(registry: Registry, job: Job) -> Links:
    """Return the links in the log of an ended job."""
    links = Links()
    cursor: str | None = None
    while job.ended:
        page = await registry.logs(job.job_id, after=cursor, limit=_PAGE, output=False)
        for event in page.events:
            if event.event_type == EventType.REPLAYED:
                links.replayed.append(str(event.attributes.get("replayed_as")))
            elif event.event_type == EventType.RESUMED:
                links.resumed.append(str(event.attributes.get("resumed_as")))
        cursor = page.cursor
        if not page.events:
            break
    return links


async def replays_of(registry: Registry, job: Job) -> list[str]:
    """Return the ids of the jobs that replay this one."""
    return (await links_of(registry, job)).replayed
