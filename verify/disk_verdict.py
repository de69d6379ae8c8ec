"""What a store holds of the workload, and where that contradicts what was answered."""

from pathlib import Path

from holdfast.core.catalogue import EventType
from holdfast.core.derived_ids import derived_id
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.ports import Registry
from holdfast.registry.resume import resumed_id
from holdfast.sdk.open import open_registry
from verify.environment import damage

ENQUEUED = ("first", "second", "third", "fourth", "fifth", "last", "handed", "mortal", "promised")
OLD_JOBS = ("old", "older")
REPLAY = derived_id("last", "replay", "replay")
RESUMED = resumed_id("promised", 0)
FACTS = ("fact-on-first", "fact-alone")
STEPS = (
    "enqueue-old",
    "cancel-older",
    "cancel-old",
    "prune",
    "enqueue",
    "expire",
    "claim",
    "heartbeat",
    "publish",
    "refuse",
    "complete",
    "retry",
    "cancel-last",
    "replay",
    "handoff-begin",
    "handoff-done",
    "record",
    "acquire",
    "aggregate",
    "claim-again",
    "release",
    "acquire-promised",
    "complete-promised",
    "look",
    "judge",
    "resume",
    "create-key",
    "revoke-key",
)
"""The steps that write, in order."""


async def holds(registry: Registry) -> set[str]:
    """The steps this store holds. One held in part shows as its name and what is there of it."""
    jobs = {job.job_id: job for job in (await registry.list_jobs(limit=1000)).jobs}
    events = (await registry.events(limit=1000)).events
    held = {event.op_id for event in events if event.op_id in STEPS}
    for step, wanted, there in (
        ("enqueue", ENQUEUED, jobs.keys()),
        ("enqueue-old", OLD_JOBS, jobs.keys()),
        ("replay", ("job", "link"), _halves(jobs, events, REPLAY, EventType.REPLAYED)),
        ("resume", ("job", "link"), _halves(jobs, events, RESUMED, EventType.RESUMED)),
        ("record", FACTS, {event.given_id for event in events}),
        ("publish", (1, 2, 3), {event.sequence for event in events if event.data}),
    ):
        found = [one for one in wanted if one in there]
        held.discard(step)
        if found:
            held.add(step if len(found) == len(wanted) else f"{step} in part: {found}")
    if "first" in jobs and jobs["first"].checkpoint == "heartbeat":
        held.add("heartbeat")
    if "promised" in jobs and (jobs["promised"].found or _looked(jobs["promised"])):
        held.add("look")
    if "mortal" in jobs and jobs["mortal"].ended:
        held.add("expire")
    if any(event.event_type == EventType.PUBLISH_REFUSED for event in events):
        held.add("refuse")
    keys = await registry.list_keys()
    held |= {"create-key"} if keys else set()
    held |= {"revoke-key"} if any(key.revoked_at for key in keys) else set()
    return {step for step in held if step}


def _halves(jobs: dict[str, Job], events: tuple[Event, ...], job_id: str, link: EventType) -> set[str]:
    """The two halves of a replay, or of what is resumed: a new job, and its link on the original."""
    linked = any(event.event_type == link for event in events)
    return {half for half, there in (("job", job_id in jobs), ("link", linked)) if there}


def _looked(job: Job) -> bool:
    """Whether somebody looks for its outputs; a verdict takes that back."""
    return job.check is not None and job.check.by is not None


def differences(answers: dict[str, str], held: set[str]) -> list[str]:
    """Where what was answered and what is there contradict each other."""
    old = {step for step in held if "-old" in step}
    pruned = answers.get("prune", "no")
    asked = answers if pruned == "no" else {s: a for s, a in answers.items() if "-old" not in s}
    found = [step for step in sorted(held - old) if " in part" in step]
    if old and pruned == "acknowledged":
        found.append(f"prune was acknowledged, but there is {sorted(old)}")
    for step in STEPS:
        if asked.get(step) == "acknowledged" and step not in {*held, "prune"}:
            found.append(f"{step} was acknowledged, but is not there")
        if asked.get(step) == "no" and step in held:
            found.append(f"{step} was said not to be applied, but is there")
    if pruned == "no" and any(" in part" in step for step in old):
        found.append(f"nothing was said to be pruned, but there is {sorted(old)}")
    return found


async def contradictions(path: Path, answers: dict[str, str]) -> list[str]:
    """Open the file as if anew: what is wrong with it, and with what was answered about it."""
    found: list[str] = []
    try:
        registry = await open_registry(f"sqlite:///{path}")
        try:
            found += differences(answers, await holds(registry))
            verification = await registry.verify()
            if not verification.equal:
                found.append(f"log and state differ: {verification.mismatches}")
        finally:
            await registry.close()
    except Exception as error:  # whatever it is, this store cannot be used
        found.append(f"the store cannot be used: {error!r}")
    return found + damage(path)
