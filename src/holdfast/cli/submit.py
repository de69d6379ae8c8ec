"""`holdfast submit`: queue a command."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import IO, TypedDict, Unpack

import click
from msgspec.structs import replace

from holdfast.cli.durations import Duration, Instant
from holdfast.cli.exit_codes import outcome_exit
from holdfast.cli.log_printer import follow_to_verdict
from holdfast.cli.options import Pair, chosen_store, given_outputs, outputs_option, store_option
from holdfast.cli.output_option import PlainOutput, submit_with_outputs
from holdfast.cli.output_summary import is_cached
from holdfast.cli.session import absolute_folder, run
from holdfast.cli.sizes import Size
from holdfast.cli.submit_file import requests_of
from holdfast.cli.submitted import show_submitted
from holdfast.cli.terminal import count, note
from holdfast.cli.traces import caller_trace, traced
from holdfast.core.job import Job
from holdfast.core.limits import LEASE_DEFAULT
from holdfast.core.outputs import File
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY, OnExhausted, Retry
from holdfast.core.spec import PRIORITY_DEFAULT, Spec
from holdfast.ports import EnqueuedJobs, JobRequest, Registry
from holdfast.sdk.defaults import actor
from holdfast.sdk.job_submission import TracedSubmission
from holdfast.sdk.output_store import chosen_outputs
from holdfast.sdk.store_url import StoreUrl


class SpecOptions(TypedDict):
    """The options that become the spec of the job."""

    queue: str
    name: str | None
    cwd: str | None
    env: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    timeout: timedelta | None
    memory: int | None
    pty: bool
    max_failures: int | None
    max_crashes: int | None
    on_exhausted: str | None
    delay: timedelta | None
    run_at: datetime | None
    ttl: timedelta | None
    priority: int
    lock: str | None
    region: str | None
    lease: timedelta
    labels: tuple[tuple[str, str], ...]


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("argv", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@click.option("--queue", "-q", default="default", show_default=True, help="Queue to put it in.")
@click.option("--name", help="A name for people; the command itself, if none is given.")
@click.option("--cwd", metavar="DIR", help="Folder to run in.  [default: this one]")
@click.option(
    "--env",
    type=Pair(),
    multiple=True,
    metavar="K=V",
    help="Set an environment variable for it; may be given several times.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="Variable to take from the worker's environment; its value is never stored.",
)
@click.option("--timeout", type=Duration(), help="Kill an attempt that runs longer.")
@click.option("--memory", type=Size(), help="Kill an attempt that uses more, with all it started.")
@click.option("--pty", is_flag=True, help="Give it a terminal (24 rows, 80 columns).")
@click.option(
    "--max-failures", type=int, help="End it after this many failed tries; 1 is no second try.  [default: 1]"
)
@click.option(
    "--max-crashes",
    type=int,
    help="End it after this many tries lost with their worker or process.  [default: 5]",
)
@click.option(
    "--on-exhausted",
    type=click.Choice([policy.value for policy in OnExhausted]),
    help="How it ends when these are used up.  [default: fail]",
)
@click.option("--delay", type=Duration(), help="Not before this much time has passed.")
@click.option("--at", "run_at", type=Instant(), help="Not before this time.")
@click.option("--ttl", type=Duration(), help="Give it up when it has not ended so long after it was queued.")
@click.option(
    "--priority",
    type=int,
    default=PRIORITY_DEFAULT,
    help="From 0, the first to be run, to 9, the last.  [default: 5]",
)
@click.option("--lock", metavar="KEY", help="Of all jobs with the same KEY, one runs at a time.")
@click.option("--region", help="Only workers of this region, or of none, may take it.")
@click.option(
    "--lease",
    type=Duration(),
    default=LEASE_DEFAULT,
    help="How long a silent worker keeps it before another may take it.  [default: 60s]",
)
@click.option("--label", "labels", type=Pair(), multiple=True, metavar="K=V", help="Label to find it by.")
@click.option(
    "--output",
    "files",
    type=PlainOutput(),
    multiple=True,
    metavar="PATH[:N]",
    help="Output it has to leave: a path from its folder, or a pattern and how many match.",
)
@click.option(
    "--manifest",
    type=click.File("rb"),
    metavar="FILE",
    help="Tasks whose results it has to leave in the output store, as JSON lines; - for stdin.",
)
@click.option(
    "--from",
    "lines",
    type=click.File("rb"),
    metavar="FILE",
    help="A job for each line: a command, or a JSON object with argv; - for stdin.",
)
@click.option("--reuse", is_flag=True, help="Run nothing when every --output is there already.")
@click.option(
    "--request-id", metavar="ID", help="Given again, it is the same job again, also when that has ended."
)
@click.option(
    "--job-id",
    metavar="ID",
    help="Id of the job itself; given again, it is the same job.  [default: a new one]",
)
@click.option(
    "--correlation-id", metavar="ID", help="An id of your own for what caused the job; shown with it."
)
@click.option("--wait", is_flag=True, help="Follow its output; exit with its exit code.")
@outputs_option
@store_option
def submit(
    *,
    argv: tuple[str, ...],
    files: tuple[File, ...],
    manifest: IO[bytes] | None,
    lines: IO[bytes] | None,
    reuse: bool,
    request_id: str | None,
    job_id: str | None,
    correlation_id: str | None,
    wait: bool,
    **options: Unpack[SpecOptions],
) -> None:
    """Queue a command and print the id of its job.

    The command is run as it is, without a shell; for a pipe write: -- sh -c 'a | b'.
    Durations are written like 90, 5m, 1h30m, 2d or PT5M, sizes like 512MB or 2GiB.

    A job that promises outputs has succeeded when they are there. An output is written as
    PATH[:COUNT][,size=BYTES][,sha256=HEX]; a path that itself ends like that needs a count of its own,
    as in odd:3:1. Results of a manifest that are there already are not made again, and when all are,
    nothing is run.

    \b
      holdfast submit -- python train.py --seed 7
      id=$(holdfast submit --timeout 10m --max-failures 3 -- ./nightly.sh)
      holdfast submit --wait -- make test
      holdfast submit --from commands.txt
      holdfast submit --output model.pt --output 'run-7/*.parquet:4' -- ./train.sh
    """
    if lines is not None:
        if argv or files or manifest or reuse or job_id or wait:
            raise click.UsageError("--from takes its commands from the file, and no outputs, id or --wait.")
        _submit_lines(lines, options, request_id, correlation_id)
        return
    if not argv:
        raise click.UsageError("There is no command to run; try: holdfast submit -- echo hello")
    if StoreUrl(chosen_store()).dies_with_process:
        raise click.UsageError("A memory store ends with this command; no worker could run the job.")
    _check_outputs(files, manifest, reuse=reuse)
    request = JobRequest(
        spec=replace(_terms(options), payload=encode_process_spec(_command(argv, options))),
        request_id=request_id,
        job_id=job_id,
        correlation_id=correlation_id,
    )

    async def enqueue(registry: Registry) -> EnqueuedJobs:
        with TracedSubmission([request], caller_trace()) as [one]:
            if not files and manifest is None:
                return await registry.enqueue_many([one], actor=actor())
            job = await submit_with_outputs(registry, one, files, manifest, reuse=reuse)
            return EnqueuedJobs.of([job], [job.job_id] if job.ended and not is_cached(job) else ())

    with traced("holdfast"):
        job = run(lambda registry: _submit(registry, enqueue, wait=wait), create=True)
    if wait:
        raise SystemExit(outcome_exit(job))


def _submit_lines(
    lines: IO[bytes], options: SpecOptions, request_id: str | None, correlation_id: str | None
) -> None:
    """Submit a job for each line, all checked before the first; print their ids in this order."""
    terms, command = _terms(options), _command((), options)
    requests = [
        replace(one, correlation_id=correlation_id) for one in requests_of(lines, terms, command, request_id)
    ]

    async def enqueue(registry: Registry) -> EnqueuedJobs:
        with TracedSubmission(requests, caller_trace()) as traced_requests:
            return await registry.enqueue_many(traced_requests, actor=actor())

    with traced("holdfast"):
        jobs = run(enqueue, create=True)
    click.echo("".join(f"{job.job_id}\n" for job in jobs), nl=False)
    note(f"Submitted {count(len(jobs) - len(jobs.existed), 'job')}.")
    if jobs.existed:
        note(f"Passed over {count(len(jobs.existed), 'job')}: they exist already, under this --request-id.")


def _check_outputs(files: tuple[File, ...], manifest: IO[bytes] | None, *, reuse: bool) -> None:
    if reuse and not files:
        raise click.UsageError("--reuse is for what --output names; a manifest is reused anyway.")
    store, kept = chosen_store(), given_outputs()
    served = StoreUrl(store).is_server
    if reuse and served:
        raise click.UsageError("A server sees no files of this machine: --reuse needs the store.")
    if kept is not None and manifest is None:
        raise click.UsageError(
            f"--outputs names the output store of a --manifest. To promise {kept!r}: --output"
        )
    if manifest is not None and not served and chosen_outputs(store, kept) is None:
        raise click.UsageError("A manifest is kept in an output store: name it with --outputs.")


def _command(argv: tuple[str, ...], options: SpecOptions) -> ProcessSpec:
    return ProcessSpec(
        argv=argv,
        env=dict(options["env"]),
        cwd=absolute_folder(options["cwd"]),
        secrets=options["secrets"],
        pty=options["pty"],
        memory_bytes=options["memory"],
    )


def _terms(options: SpecOptions) -> Spec:
    """Return the spec without a command."""
    return Spec(
        queue=options["queue"],
        name=options["name"],
        priority=options["priority"],
        region=options["region"],
        lock=options["lock"],
        lease=options["lease"],
        timeout=options["timeout"],
        delay=options["delay"],
        run_at=options["run_at"],
        ttl=options["ttl"],
        retry=_retry(options["max_failures"], options["max_crashes"], options["on_exhausted"]),
        labels=dict(options["labels"]),
    )


def _retry(failures: int | None, crashes: int | None, exhausted: str | None) -> Retry:
    retry = COMMAND_RETRY
    if failures is not None:
        retry = replace(retry, max_failures=failures)
    if crashes is not None:
        retry = replace(retry, max_crashes=crashes)
    return retry if exhausted is None else replace(retry, on_exhausted=OnExhausted(exhausted))


async def _submit(
    registry: Registry, enqueue: Callable[[Registry], Awaitable[EnqueuedJobs]], *, wait: bool
) -> Job:
    jobs = await enqueue(registry)
    [job] = jobs
    await show_submitted(registry, job, "holdfast worker", wait=wait, existed=bool(jobs.existed))
    return await follow_to_verdict(registry, job.job_id) if wait else job
