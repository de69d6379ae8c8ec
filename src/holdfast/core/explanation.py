"""The explanation of a job: why it is in its state and what happens next, in one or two sentences."""

from datetime import datetime, timedelta

from holdfast.core.clock_step import TOLERANCE, ClockStepSummary
from holdfast.core.job import Job, Lease
from holdfast.core.limits import NOT_STARTED_MAX, NOT_UNDERSTOOD_MAX
from holdfast.core.outputs import ValidationProgress, ValidationResult, is_being_validated
from holdfast.core.process_spec import holdfast_worker_reason
from holdfast.core.quota import describe_dropped_output
from holdfast.core.retry import expected_waits
from holdfast.core.spec import COMMAND_KIND
from holdfast.core.state import State
from holdfast.core.visibility import WAITS_FOR_HOLDER

MISSING_NAMES_SHOWN = 5
"""How many missing outputs a sentence lists: those of a study have long names."""


def explain(
    job: Job,
    now: datetime,
    *,
    waiting: int | None = None,
    holder: Job | None = None,
    wait: str | None = None,
    published_at: datetime | None = None,
) -> str:
    """Return why the job is in its state. `waiting` is the number of other queued jobs, `holder` the job
    that holds the resource lock, `wait` what `wait_explanation` says about the workers; `published_at` is
    when its owner last published something."""
    if job.state is State.QUEUED:
        state = _queued(job, now, waiting, holder, wait)
    else:
        state = _state(job, now, published_at)
    return " ".join([state, *_clock_steps(job, now), *describe_flaws(job)])


def _clock_steps(job: Job, now: datetime) -> list[str]:
    """How a step of the store's clock touched the job; empty for most jobs."""
    if job.ended:
        return []
    found = []
    if job.lease is not None and job.lease.moved:
        moved = job.lease.moved
        found.append(
            f"The store's clock was set {describe_clock_change(moved)} while it was held; the lease was"
            " moved along and kept its length."
        )
    elif job.updated_at > now + TOLERANCE:
        ahead = format_duration(job.updated_at - now)
        found.append(
            f"It was last changed {ahead} from now, as the store's clock tells it: that clock was set back."
        )
    return found


def describe_clock_step(steps: ClockStepSummary) -> str | None:
    """Return a sentence on the last step of a store's clock, for operators; None if there was none."""
    if steps.at is None:
        return None
    jobs = "1 job was" if steps.jobs == 1 else f"{steps.jobs:,} jobs were"
    return (
        f"Its clock was set {describe_clock_change(steps.by)}, to {steps.at:%Y-%m-%d %H:%M:%S} UTC, as"
        f" {steps.noticed_by} noticed; {jobs} carried over: leases and waits kept their length."
    )


def describe_clock_change(by: timedelta) -> str:
    """Return by how much a clock was set, and in which direction."""
    return f"{format_duration(abs(by))} {'ahead' if by > timedelta() else 'back'}"


def _state(job: Job, now: datetime, published_at: datetime | None) -> str:
    match job.state:
        case State.PENDING:
            return f"It is registered and waits for its submitter to hand it to {_executor(job)}."
        case State.SUBMITTING:
            return f"It is being handed to {_executor(job)}, {format_duration(now - job.updated_at)} so far."
        case State.ASSIGNED | State.RUNNING | State.AGGREGATING:
            return " ".join([_leased(job, now), *_running(job, now, published_at)])
        case State.VALIDATING:
            return _validating(job, now)
        case _:
            return _ended(job, now)


def _executor(job: Job) -> str:
    return f"executor {job.spec.executor}" if job.spec.executor else "an executor"


def _queued(job: Job, now: datetime, waiting: int | None, holder: Job | None, wait: str | None) -> str:
    spec = job.spec
    past = f" Attempt {job.attempt - 1} ended: {_clause(job)}." if job.attempt > 1 else ""
    past += _not_understood(job) + _not_started(job)
    if job.ready_at > now:
        until = f"It waits until {job.ready_at:%Y-%m-%d %H:%M:%S} UTC ({format_duration(job.ready_at - now)})"
        nobody = f" {wait}" if wait else ""
        claimed = f"then any worker on queue {spec.queue} may claim it"
        return f"{until}; {claimed}.{_tries(job, now)}{past}{nobody}"
    if holder is not None and holder.job_id != job.job_id and holder.leased:
        held = WAITS_FOR_HOLDER.format(lock=spec.lock, holder=holder.job_id)
        return (
            f"It waits for {held}{holder.state}, owner {holder.owner}); it is claimable as soon as that"
            f" ends.{past}"
        )
    lacking = holdfast_worker_reason(spec)
    own = f" It needs a holdfast worker: {lacking}." if lacking else ""
    deadline = f" It is given up at {job.deadline_at:%H:%M:%S} UTC." if job.deadline_at else ""
    others = f", beside {waiting} other job{'s' * (waiting != 1)}" if waiting else ""
    ready = f"It has been ready for {format_duration(now - job.ready_at)}"
    if wait is not None:
        return f"{ready}{others}.{own}{deadline}{past} {wait}"
    who = (
        f"a claim on behalf of executor {spec.executor}"
        if spec.executor
        else f"a worker on queue {spec.queue}"
        + (f" in region {spec.region}" if spec.region else "")
        + ("" if spec.kind == COMMAND_KIND else f" that runs the kind {spec.kind}")
    )
    next_step = (
        f" If nothing moves, start one: holdfast worker -q {spec.queue}"
        if spec.kind == COMMAND_KIND and not spec.executor
        else ""
    )
    return f"{ready} and waits for {who}{others}.{own}{deadline}{past}{next_step}"


def _tries(job: Job, now: datetime) -> str:
    """When a job that has failed is tried again, and when for the last time."""
    spent, most = _budget(job)
    if job.error is None or not spent:
        return ""
    coming = f" Next try in {format_duration(job.ready_at - now)}"
    if spent + 1 >= most:
        return f"{coming}, the last of {most}."
    last_at = job.ready_at + expected_waits(job.spec.retry, spent, most)
    day = "" if last_at.date() == now.date() else f"{last_at:%Y-%m-%d} "
    return f"{coming} ({spent + 1} of {most}), the last about {day}{last_at:%H:%M} UTC."


def _budget(job: Job) -> tuple[int, int]:
    """How much of the budget that the last error counted against is used up, and how much there is."""
    retry = job.spec.retry
    if job.error is not None and job.error.crash:
        return job.crashes, retry.max_crashes
    return job.failures, retry.max_failures


def describe_retry(job: Job) -> str:
    """Return which attempt has just failed, of how many, and when the next one begins."""
    (spent, most), number = _budget(job), job.attempt - 1
    of = f"attempt {number} of {most}" if spent == number else f"attempt {number}, failure {spent} of {most}"
    wait = job.ready_at - job.updated_at
    return f"{of}; next {f'in {format_duration(wait)}' if wait > timedelta() else 'at once'}"


def _not_understood(job: Job) -> str:
    if not job.not_understood:
        return ""
    return (
        f" It was given back {_times(job.not_understood)}, of at most {NOT_UNDERSTOOD_MAX}, by workers whose"
        f" code does not know what it names: start one with the code that made it."
    )


def _not_started(job: Job) -> str:
    if not job.not_started:
        return ""
    return (
        f" It was given back {_times(job.not_started)}, of at most {NOT_STARTED_MAX}, by workers that could"
        f" not start it, or keep what it made; then it counts as that error."
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _leased(job: Job, now: datetime) -> str:
    lease = job.lease
    assert lease is not None  # leased states have a lease
    doing = {State.ASSIGNED: "has claimed it but not started", State.RUNNING: "is running it"}
    words = f"{lease.owner} {doing.get(job.state, 'is evaluating its targets')}"
    words += f" (attempt {job.attempt}, token {job.fencing_token})"
    if job.progress is not None:
        total = f" of {job.progress.total}" if job.progress.total is not None else ""
        words += f", {job.progress.done}{total} done"
    return f"{words}. {_next(job, lease, now)}"


def _next(job: Job, lease: Lease, now: datetime) -> str:
    silent = f"Its owner was last heard of {format_duration(now - lease.heartbeat_at)} ago"
    if job.cancel is not None:
        return (
            f"A cancel was requested by {job.cancel.actor}; it ends when the owner stops,"
            f" or when the lease ends in {format_duration(lease.expires_at - now)}."
        )
    if lease.expires_at <= now:
        return f"{silent}; the lease has lapsed, so the next claim takes the job from it."
    suspected = " and has missed two heartbeats" if lease.suspected else ""
    if job.timeout_at is not None and job.timeout_at <= lease.expires_at:
        return (
            f"{silent}{suspected}; its timeout ends the attempt in {format_duration(job.timeout_at - now)},"
            " if it has not ended by then."
        )
    return (
        f"{silent}{suspected}; unless it renews, the lease ends in {format_duration(lease.expires_at - now)}"
        " and another worker may take over."
    )


def _running(job: Job, now: datetime, published_at: datetime | None) -> list[str]:
    """How long an attempt has been running, since when it is silent, and what ends it."""
    if job.started_at is None or job.state is State.ASSIGNED or job.cancel is not None:
        return []
    ran = format_duration(now - job.started_at)
    if published_at is not None:
        silent = f"its last output or event came {format_duration(now - published_at)} ago"
    else:
        silent = "without any output or event so far"
    return [f"It has been running for {ran}, {silent}.", *_time_left(job, now)]


def _time_left(job: Job, now: datetime) -> list[str]:
    """How much of its timeout is left, unless that is said with the lease."""
    limit = job.spec.timeout
    if limit is None or job.started_at is None:
        return ["It has no timeout."]
    left = job.started_at + limit - now
    if job.timeout_at is not None:
        return []
    if left <= timedelta():
        return [f"Its timeout of {format_duration(limit)} was over {format_duration(-left)} ago."]
    return [f"Its timeout of {format_duration(limit)} is over in {format_duration(left)}."]


def _validating(job: Job, now: datetime) -> str:
    check, done = job.check or ValidationProgress(), "The work is done"
    if check.by is not None and is_being_validated(check, now):
        seen = f", {check.done:,} of {check.total:,} so far" if check.total else ""
        return f"{done}; {check.by} is validating its outputs{seen}."
    override = f" If you know better: holdfast validate {job.job_id} --override succeeded --reason ..."
    if check.reason is not None:
        failed = (
            f"{done}, but its outputs could not be seen, tried {_times(check.tries)}:"
            f" {check.reason.rstrip('.')}."
        )
        return f"{failed} {_next_validation(check, now)}{override}"
    if job.spec.outputs is None:
        return f"{done}; it waits for your own validator to validate its outputs.{override}"
    return f"{done}; its promised outputs have not been validated yet. {_next_validation(check, now)}"


def _next_validation(check: ValidationProgress, now: datetime) -> str:
    where = f" on {check.where.partition(':')[0]}" if check.where else ""
    if check.next_at is None or check.next_at <= now:
        return f"The next worker or server{where} that can see them validates them."
    again = " again" if check.tries else ""
    return f"Any worker or server{where} validates them{again} in {format_duration(check.next_at - now)}."


def _partial(job: Job) -> str:
    found = job.found or ValidationResult()
    total = job.spec.promised_outputs
    names = found.names[:MISSING_NAMES_SHOWN]
    more = found.missing - len(names)
    others = f" and {more:,} more" if more > 0 else ""
    named = f": {', '.join(names)}{others}" if names else ""
    lack = "is" if found.missing == 1 else "are"
    unseen, which = "", "those"
    if job.check is not None and job.check.reason is not None:
        unseen = f" Validated again, they could not be seen: {job.check.reason.rstrip('.')}."
        which = "what is missing"
    verb = "To make only" if _splits(job) else "To run it again for"
    return (
        f"{found.verified:,} of its {total:,} outputs are there, {found.missing:,} {lack} missing{named}."
        f"{unseen} {verb} {which}: holdfast resume {job.job_id}"
    )


def _splits(job: Job) -> bool:
    """Return whether single outputs can be made again: tasks of a study can, files of a command cannot."""
    promise = job.spec.outputs
    return promise is None or not (promise.files or promise.names)


def _left(job: Job, now: datetime) -> str:
    """Which outputs of an unsuccessful job exist, as a clause on its end."""
    found, total = job.found, job.spec.promised_outputs
    if found is None:
        return _unvalidated(job, now) if total else ""
    if found.missing == 0:
        there = "Its output is" if total == 1 else f"All {total:,} outputs are"
        return f" {there} there all the same."
    if found.verified == 0:
        return " Its output is missing." if total == 1 else f" All {total:,} outputs are missing."
    there = f" {found.verified:,} of {total:,} outputs are there"
    if _splits(job):
        return f"{there}; to make the other {found.missing:,}: holdfast resume {job.job_id}"
    return f"{there}; to run it again for the other {found.missing:,}: holdfast resume {job.job_id}"


def _unvalidated(job: Job, now: datetime) -> str:
    check, total = job.check or ValidationProgress(), job.spec.promised_outputs
    if check.by is not None and is_being_validated(check, now):
        return f" {check.by} is validating its outputs."
    promised = "Its output" if total == 1 else f"Its {total:,} outputs"
    advice = f"Validate now: holdfast validate {job.job_id} --force"
    if check.reason is None:
        return f" {promised} may be there: not validated yet. {advice}"
    return f" {promised} could not be seen: {check.reason.rstrip('.')}. {advice}"


def _succeeded(job: Job, tries: str) -> str:
    found, total = job.found, job.spec.promised_outputs
    if total and (found is None or found.missing):
        return f"It counts as succeeded by an override: {_clause(job)}."
    if found is None:
        return f"It succeeded {tries}. Nothing more will happen."
    there = "its output is there" if total == 1 else f"all {total:,} outputs are there"
    if job.claim_op_id is None:  # made and ended in one commit
        return f"Nothing was run for it: {there} already."
    reused = f", {found.reused:,} of them made before" if found.reused else ""
    return f"It succeeded {tries}: {there}{reused}. Nothing more will happen."


def _ended(job: Job, now: datetime) -> str:
    tries = f"after {job.attempt} attempts" if job.attempt > 1 else "on the first attempt"
    match job.state:
        case State.SUCCEEDED:
            return _succeeded(job, tries)
        case State.PARTIAL_SUCCESS:
            return _partial(job)
        case State.CANCELLED:
            words, again = "was cancelled", "replay"
        case State.DEAD_LETTERED:
            words, again = f"was parked among the dead letters {tries}", "dead-letters replay"
        case State.TIMEOUT:
            words, again = f"timed out {tries}", "replay"
        case _:
            words, again = f"failed {tries}", "replay"
    left = _left(job, now)
    if job.resumable and job.found is not None and job.found.verified:
        return f"It {words}: {_clause(job)}.{left}"
    return f"It {words}: {_clause(job)}.{left} To run it again: holdfast {again} {job.job_id}"


def describe_flaws(job: Job) -> list[str]:
    """Return a sentence for each thing that is wrong with what the last attempt published."""
    flaws = job.flaws
    if flaws is None:
        return []
    attempt = f"attempt {job.attempt - (job.state is State.QUEUED)}"
    found = []
    if flaws.missed:
        events = "1 event" if flaws.missed == 1 else f"{flaws.missed:,} events"
        found.append(f"{events} of {attempt} never arrived: its output has gaps.")
    if flaws.refused:
        times = "Once" if flaws.refused == 1 else f"{flaws.refused:,} times"
        reason = (flaws.reason or "").rstrip(".")
        found.append(f"{times} what {attempt} published was refused: {reason}.")
    if flaws.dropped_bytes:
        found.append(describe_dropped_output(flaws.dropped_bytes, job.attempt - (job.state is State.QUEUED)))
    if flaws.exit_code is not None and job.owner_ended_at is not None and job.error is None:
        code = " with exit code 0" if job.result == {"exit_code": 0} else ""
        found.append(f"The worker reported success{code}, but its process ended with {flaws.exit_code}.")
    return found


def _clause(job: Job) -> str:
    """The reason as a clause, without a full stop."""
    return (job.reason or "no reason was given").rstrip(".")


def format_duration(length: timedelta) -> str:
    """Return a duration as text, such as 9.2 s, 5 min or 2.0 days."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"
