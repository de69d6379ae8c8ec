"""The explanation of a wait: who could take a queued job, and why nobody has."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from difflib import get_close_matches

from msgspec import Struct

from holdfast.core.explanation import format_duration
from holdfast.core.job import Job
from holdfast.core.spec import COMMAND_KIND, JOB_V1_KIND, Spec
from holdfast.core.workers import FORGOTTEN_AFTER, WorkerInfo

AHEAD_MAX = 1_000
"""How many jobs that are ahead of one are counted."""
NAMES_SHOWN = 3


class Surroundings(Struct, frozen=True, kw_only=True):
    """What is known around a queued job: all `workers`, how many ready jobs are `ahead` of it (up to
    `AHEAD_MAX`; None: the caller may not know), and whether somebody holds jobs of its queue (`moving`).
    `names` says whether the caller may know the workers, `reaches` of which other queues it may know."""

    workers: Sequence[WorkerInfo]
    ahead: int | None = None
    moving: bool = False
    names: bool = True
    reaches: Callable[[str], bool] = lambda queue: True


def describe_wait(job: Job, now: datetime, around: Surroundings) -> str | None:
    """Return what the job waits for, as sentences; None when that is no worker, or when the workers that are
    known do not tell: others may claim without announcing themselves."""
    spec = job.spec
    if spec.executor or spec.kind == JOB_V1_KIND:
        return None
    serving = [one for one in around.workers if one.live(now) and spec.queue in one.queues]
    if not serving:
        return None if around.moving else _nobody(spec, now, around)
    near = [one for one in serving if _in_region(one, spec)]
    if not near:
        return (
            f"Queue {spec.queue} is served by {_who(serving, around)}, but not in region {spec.region}."
            f" Start a worker there: {_command(spec)} --region {spec.region}"
        )
    able = [one for one in near if spec.kind in one.kinds]
    if not able:
        return _unknown_kind(spec, near, around)
    if job.ready_at > now:
        return None
    free = [one for one in able if one.free(spec.kind)]
    return _free(spec.kind, free, now, around) if free else _busy(spec.kind, able, now, around)


def _nobody(spec: Spec, now: datetime, around: Surroundings) -> str:
    """Nobody serves the queue: who did last, and which queue may be meant."""
    was = [one for one in around.workers if spec.queue in one.queues]
    if was:
        last = max(was, key=lambda one: one.seen_at)
        ago = format_duration(now - last.seen_at)
        named = f", {last.name}," if around.names else ""
        ended = f"stopped {ago} ago" if last.stopped else f"was last heard of {ago} ago"
        words = f"No known worker serves queue {spec.queue}: the last one{named} {ended}."
    else:
        hours = FORGOTTEN_AFTER.total_seconds() / 3600
        words = f"No known worker serves queue {spec.queue}, nor did one in the last {hours:.0f} h."
    return f"{words}{_meant(spec, now, around)} Start one: {_command(spec)}"


def _meant(spec: Spec, now: datetime, around: Surroundings) -> str:
    served: dict[str, list[WorkerInfo]] = {}
    for one in around.workers:
        for queue in one.queues if one.live(now) else ():
            if around.reaches(queue):
                served.setdefault(queue, []).append(one)
    near = get_close_matches(spec.queue, served, 1)
    return f" Did you mean queue {near[0]}? {_serves(served[near[0]], around)} it." if near else ""


def _unknown_kind(spec: Spec, near: Sequence[WorkerInfo], around: Surroundings) -> str:
    who = f"Queue {spec.queue} is served by {_who(near, around)}, but"
    if spec.kind == COMMAND_KIND:
        return f"{who} not for commands. Start a worker for them: {_command(spec)}"
    name = spec.kind.partition(":")[0]
    having = {one.name: [k for k in one.kinds if k.partition(":")[0] == name] for one in near}
    versions = sorted({kind for kinds in having.values() for kind in kinds})
    if not versions:
        return f"{who} not for the kind {spec.kind}. Start a worker whose app has it: {_command(spec)}"
    owners = f" ({_list((name for name, kinds in having.items() if kinds), ', ')})" if around.names else ""
    return (
        f"{who} not for {spec.kind}, only for {', '.join(versions)}{owners}, which is another version of the"
        f" code. Start a worker with the code that made the job: {_command(spec)}"
    )


def _busy(kind: str, able: Sequence[WorkerInfo], now: datetime, around: Surroundings) -> str:
    if len(able) == 1:
        who = f"{able[0].name}, the only worker that can run it," if around.names else "Its only worker"
        return f"{who} {_occupied(kind, able[0], now)}{_as_of(able, now)}{_ahead(around)}."
    each = (f"{one.name} {_occupied(kind, one, now)}" for one in able)
    named = f": {_list(each, '; ')}" if around.names else ""
    return f"All {len(able)} workers that can run it are busy{named}{_as_of(able, now)}{_ahead(around)}."


def _occupied(kind: str, worker: WorkerInfo, now: datetime) -> str:
    taken, most = worker.taken(kind)
    slots = f"{taken} of {most} slots taken"
    state = worker.state(now)
    if state == "paused":
        return f"claims nothing for a while, as its machine cannot run jobs, with {slots}"
    return f"is leaving, with {slots}" if state == "leaving" else f"is busy, with {slots}"


def _free(kind: str, free: Sequence[WorkerInfo], now: datetime, around: Surroundings) -> str:
    slots = sum(one.free(kind) for one in free)
    has = f"{slots:,} free slot{'s' * (slots != 1)}"
    return f"It waits to be claimed by {_who(free, around)}, with {has}{_as_of(free, now)}{_ahead(around)}."


def _as_of(workers: Sequence[WorkerInfo], now: datetime) -> str:
    return f" {format_duration(now - min(one.seen_at for one in workers))} ago"


def _ahead(around: Surroundings) -> str:
    if around.ahead is None:
        return ""
    if around.ahead == 0:
        return "; it is the next of its queue"
    more = " or more" if around.ahead >= AHEAD_MAX else ""
    jobs = "1 job is" if around.ahead == 1 else f"{around.ahead:,}{more} jobs are"
    return f"; {jobs} ahead of it in its queue"


def _serves(workers: Sequence[WorkerInfo], around: Surroundings) -> str:
    return f"{_who(workers, around)} serve{'s' * (len(workers) == 1)}"


def _who(workers: Sequence[WorkerInfo], around: Surroundings) -> str:
    """Return the names of the workers, or their number where the caller may not know the names."""
    if around.names:
        return _list((one.name for one in workers), ", ")
    return f"{len(workers)} worker{'s' * (len(workers) != 1)}"


def _list(words: Iterable[str], separator: str) -> str:
    found = list(dict.fromkeys(words))
    more = len(found) - NAMES_SHOWN
    return separator.join(found[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _in_region(worker: WorkerInfo, spec: Spec) -> bool:
    return not spec.region or not worker.region or worker.region == spec.region


def _command(spec: Spec) -> str:
    app = "" if spec.kind == COMMAND_KIND else " MODULE:APP"
    return f"holdfast worker{app} -q {spec.queue}"
