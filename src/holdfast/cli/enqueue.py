"""`holdfast enqueue`: queue a call of a function."""

import asyncio
import sys
from datetime import datetime, timedelta
from textwrap import fill
from typing import Any, TypedDict, Unpack

import click
import msgspec
from msgspec.structs import replace

from holdfast.cli.durations import Duration, Instant
from holdfast.cli.exit_codes import outcome_exit
from holdfast.cli.function_words import FunctionWords
from holdfast.cli.json_output import encode_json
from holdfast.cli.named_function import AnyFunction, find_function
from holdfast.cli.options import Pair, given_outputs, given_store, outputs_option, store_option
from holdfast.cli.submitted import show_submitted
from holdfast.cli.terminal import note
from holdfast.cli.terminal_escape import plain
from holdfast.cli.traces import caller_trace, traced
from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.retry import OnExhausted
from holdfast.core.state import State
from holdfast.runner.call import Call
from holdfast.sdk.app import App
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.store_url import StoreUrl

HELP = ("--help", "-h")


class JobTerms(TypedDict):
    """The options of the job; None where the function decides."""

    queue: str | None
    name: str | None
    priority: int | None
    delay: timedelta | None
    run_at: datetime | None
    timeout: timedelta | None
    ttl: timedelta | None
    lease: timedelta | None
    lock: str | None
    region: str | None
    labels: tuple[tuple[str, str], ...]
    max_failures: int | None
    max_crashes: int | None
    on_exhausted: str | None
    request_id: str | None
    job_id: str | None
    correlation_id: str | None


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("words", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--queue", "-q", help="Queue to put it in.")
@click.option("--name", help="A name for people.")
@click.option("--priority", type=int, help="From 0, the first to be run, to 9, the last.")
@click.option("--delay", type=Duration(), help="Not before this much time has passed.")
@click.option("--at", "run_at", type=Instant(), help="Not before this time.")
@click.option("--timeout", type=Duration(), help="End an attempt that runs longer.")
@click.option("--ttl", type=Duration(), help="Give it up when it has not ended so long after it was queued.")
@click.option(
    "--lease", type=Duration(), help="How long a silent worker keeps it before another may take it."
)
@click.option("--lock", metavar="KEY", help="Of all jobs with the same KEY, one runs at a time.")
@click.option("--region", help="Only workers of this region, or of none, may take it.")
@click.option("--label", "labels", type=Pair(), multiple=True, metavar="K=V", help="Label to find it by.")
@click.option("--max-failures", type=int, help="End it after this many failed tries; 1 is no second try.")
@click.option(
    "--max-crashes", type=int, help="End it after this many tries lost with their worker or process."
)
@click.option(
    "--on-exhausted",
    type=click.Choice([policy.value for policy in OnExhausted]),
    help="How it ends when these are used up.",
)
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
@click.option("--wait", is_flag=True, help="Wait for its end, print its result; exit with its exit code.")
@outputs_option
@store_option
def enqueue(function: str, words: tuple[str, ...], *, wait: bool, **terms: Unpack[JobTerms]) -> None:
    """Queue a call of a job function and print the id of its job.

    Before the function stand the options of the job, after it the arguments of the function: by their place
    or by name, as its annotations say; lists and objects as JSON. With --help after the function, its
    parameters are shown. What is not given is as the code says, the store too.

    MODULE is looked up in the current folder first; FUNCTION may also be the name of a job, or APP.JOB.

    \b
      holdfast enqueue shop:resize cat.png --width 320
      holdfast enqueue --queue bulk --delay 5m shop:resize cat.png
      holdfast enqueue --wait shop:add 1 2
      holdfast enqueue shop:resize --help
    """
    app, found = find_function(function)
    reader = FunctionWords(function, found.function, found.arguments.parameters)
    if any(word in HELP for word in words):
        _explain(found, reader)
        return
    call = _call(found, reader, words, terms)
    store, outputs = given_store(), given_outputs()
    if StoreUrl(store or app.url).dies_with_process:
        raise click.UsageError(
            "A memory store ends with this command; no worker could run the job: --store sqlite:///jobs.db"
        )
    if store is not None:
        app.url = store
    if outputs is not None:
        app.outputs = outputs
    with traced("holdfast"):
        job = asyncio.run(_enqueue(app, call, function.partition(":")[0], wait=wait))
    if wait:
        raise SystemExit(outcome_exit(job))


def _explain(function: AnyFunction, reader: FunctionWords) -> None:
    """Print how the function is called."""
    usage = f"Usage: holdfast enqueue [OPTIONS OF THE JOB] {reader.usage}"
    formatter = click.HelpFormatter()
    indent = " " * len("Usage: ")
    formatter.write(fill(usage, formatter.width, subsequent_indent=indent, break_on_hyphens=False) + "\n")
    if text := (function.__doc__ or "").strip():
        formatter.write_paragraph()
        formatter.write_text(plain(text.partition("\n\n")[0]))
    if lines := reader.explain():
        with formatter.section("Arguments"):
            formatter.write_dl(lines)
    click.echo(formatter.getvalue(), nl=False)


def _call(function: AnyFunction, reader: FunctionWords, words: tuple[str, ...], terms: JobTerms) -> Call[Any]:
    """Return the call with its options, checked against the signature."""
    options: dict[str, Any] = {name: value for name, value in terms.items() if value not in (None, ())}
    if "labels" in options:
        options["labels"] = dict(options["labels"])
    if (trace := caller_trace()) is not None:
        options["traceparent"] = trace
    retry: dict[str, Any] = {
        name: options.pop(name) for name in ("max_failures", "max_crashes") if name in options
    }
    if "on_exhausted" in options:
        retry["on_exhausted"] = OnExhausted(options.pop("on_exhausted"))
    payload = msgspec.Raw(msgspec.json.encode(reader.read(words)))
    try:
        call = function.call(**function.arguments.decode(payload))
        if retry:
            options["retry"] = replace(call.spec.retry, **retry)
        return function.configure(**options).call(**function.arguments.decode(payload)) if options else call
    except Invalid as error:
        error.advice = f"It is called as: {reader.usage}"
        raise


async def _enqueue(app: App, call: Call[Any], module: str, *, wait: bool) -> Job:
    """Return the job; with `wait`, when it has ended. The app is in the module or in one that it imports."""
    name = next((name for name, one in vars(sys.modules[module]).items() if one is app), "app")
    async with app.client() as client:
        jobs = await client.create_jobs([call])
        [job] = jobs
        worker = f"holdfast worker {module}:{name}"
        await show_submitted(client.registry, job, worker, wait=wait, existed=bool(jobs.existed))
        return await _wait(client, job.job_id) if wait else job


async def _wait(client: AsyncClient, job_id: str) -> Job:
    """Wait until the job has ended, and print its result, or how it ended."""
    job = await client.wait(job_id)
    if job.state is State.SUCCEEDED:
        click.echo(encode_json((await client.wait_result(job_id)).result))
    else:
        note(f"Job {job_id} ended {job.state}: {plain(job.reason or 'no reason was given')}")
        note(f"What to do: holdfast why {job_id}")
    return job
