"""The systems that are frozen: pinned versions, what each promises in its own words, how long to wait.

How each is set up is in its program, beside the code that uses it; the program's `settings` tells it."""

from dataclasses import dataclass
from typing import Literal

from servers import Kind

NO_COORDINATOR = ""


@dataclass(frozen=True)
class Peer:
    """`number` is what the handler is given that might rise with every run; the scene sees if it does.

    `coordinator` says in words which process others depend on for rescue; empty where none is. With
    `elected` one worker holds that part: in the scene of the freeze a healthy w-0 has it, and is kept from
    the job by one of its own (`busy`) or by another queue (`apart`). With `time_passes` its limit cannot be
    made short, and the program's `pass_time` makes the marks in the store older."""

    name: str
    store: Kind
    program: str
    packages: tuple[str, ...]
    promise: str
    source: str
    number: str = ""
    coordinator: str = NO_COORDINATOR
    elected: Literal["", "busy", "apart"] = ""
    time_passes: bool = False
    rescue_seconds: float = 30.0
    settle_seconds: float = 1.0
    variant: str = ""

    @property
    def key(self) -> str:
        """The folder of its environment."""
        return self.program.removeprefix("with_").partition(".")[0]

    @property
    def title(self) -> str:
        return f"{self.name} on {self.store}"


_HOLDFAST_PROMISE = "A job may run more than once; its result is committed at most once, by the newest owner."

PEERS = (
    Peer(
        name="holdfast",
        store="SQLite",
        program="with_holdfast.py",
        packages=(),
        number="`ctx.fencing_token`",
        coordinator="none needed; run all the same",
        promise=_HOLDFAST_PROMISE,
        source="our README.md",
    ),
    Peer(
        name="holdfast",
        store="PostgreSQL",
        program="with_holdfast.py",
        packages=(),
        number="`ctx.fencing_token`",
        coordinator="none needed; run all the same",
        promise=_HOLDFAST_PROMISE,
        source="our README.md",
    ),
    Peer(
        name="PgQueuer",
        store="PostgreSQL",
        program="with_pgqueuer.py",
        packages=("pgqueuer[asyncpg]==1.6.0",),
        number="`job.attempts`",
        promise="A recovered job **will run again from the start**. Ensure your job functions are "
        "idempotent, or checkpoint progress externally so a restart is safe.",
        source="github.com/janbjorge/pgqueuer, docs/guides/reliability.md",
    ),
    Peer(
        name="Procrastinate",
        store="PostgreSQL",
        program="with_procrastinate.py",
        packages=("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
        number="`context.job.attempts`",
        promise="[...] if you have multiple workers, and, for some reason, one of them gets killed while "
        "running jobs, then one of the remaining workers will run the `retry_stalled_jobs` task, marking the "
        "stalled jobs for retry.",
        source="github.com/procrastinate-org/procrastinate, docs/howto/production/retry_stalled_jobs.md",
    ),
    Peer(
        name="RQ",
        store="Redis",
        program="with_rq.py",
        packages=("rq==2.12.0",),
        rescue_seconds=120,
        promise="If the worker gets killed while a job is running, it will eventually end up in "
        "`FailedJobRegistry` because a cleanup task will raise an `AbandonedJobError`.",
        source="github.com/rq/rq, docs/docs/results.md",
    ),
    Peer(
        name="SAQ",
        store="PostgreSQL",
        program="with_saq.py",
        packages=("saq[postgres]==0.26.4", "psycopg[binary]==3.3.8"),
        number="`job.attempts`",
        coordinator="the worker that holds the sweep lock",
        elected="busy",
        promise="Heartbeat monitor for abandoned jobs [...] More robust failure handling [...] Sweeping "
        "stuck jobs",
        source="github.com/tobymao/saq, README.md",
    ),
    Peer(
        name="Celery",
        store="Redis",
        program="with_celery.py",
        packages=("celery[redis]==5.7.0",),
        number="`request.retries`",
        rescue_seconds=60,
        promise="If a task isn't acknowledged within the visibility timeout the task will be redelivered to "
        "another worker and executed. [...] If your task is idempotent you can set the `acks_late` option "
        "[...]",
        source="github.com/celery/celery, docs/getting-started/backends-and-brokers/redis.rst and "
        "docs/userguide/tasks.rst",
    ),
    Peer(
        name="Dramatiq",
        store="Redis",
        program="with_dramatiq.py",
        packages=("dramatiq[redis]==2.2.1",),
        promise="Dramatiq actors may receive the same message multiple times in the event of a worker "
        "failure (hardware, network or power failure). This means that, for any given message, running your "
        "actor multiple times must be safe.",
        source="github.com/Bogdanp/dramatiq, docs/source/best_practices.rst",
    ),
    Peer(
        name="streaQ",
        store="Redis",
        program="with_streaq.py",
        packages=("streaq==7.2.0",),
        number="`context.tries`",
        promise='streaQ uses a task execution model called "pessimistic execution" or "at-least-once" [...] '
        "All streaQ tasks should therefore be designed to cope with being called repeatedly if they're "
        "cancelled.",
        source="github.com/tastyware/streaq, docs/task.rst",
    ),
    Peer(
        name="chancy",
        store="PostgreSQL",
        program="with_chancy.py",
        packages=("chancy==0.26.0", "psycopg[binary]==3.3.8"),
        number="`job.attempts`",
        coordinator="the elected leader",
        elected="busy",
        promise="Recovery invalidates the old execution's claim [...] Late updates from the old claim are "
        "discarded even if it keeps running.",
        source="`chancy/plugins/recovery.py` in the package",
    ),
    Peer(
        name="awa",
        store="PostgreSQL",
        program="with_awa.py",
        packages=("awa-pg==0.6.9",),
        number="`job.attempt`",
        coordinator="the maintenance leader",
        elected="apart",
        promise="**At-least-once delivery** is the contract. Awa rejects stale completions and rescues stuck "
        'work, but it does not promise "exactly once".',
        source="github.com/hardbyte/awa, README.md",
    ),
    Peer(
        name="pg-boss",
        store="PostgreSQL",
        program="with_pg-boss.mjs",
        # 12.38.0 asks for a version of rrule-temporal that the registry does not have.
        packages=("pg-boss@12.35.0",),
        number="`job.retryCount`",
        coordinator="the instance whose turn it is; none holds it",
        promise="Exactly-once job delivery [...] Jobs passed as { id, retryCount } (what fetch() and work() "
        "hand out) come back with their attempts, which fence the call to the attempt that was fetched",
        source="github.com/timgit/pg-boss, README.md, and a comment in `dist/manager.js` in the package",
    ),
    Peer(
        name="Graphile Worker",
        store="PostgreSQL",
        program="with_graphile-worker.mjs",
        packages=("graphile-worker@0.18.0",),
        number="`job.attempts`",
        time_passes=True,
        promise="[...] each job will execute at least once. Most jobs will execute exactly once; but if "
        "something goes wrong [...] then Graphile Worker will automatically retry the job at a later time",
        source="github.com/graphile/worker, website/docs/index.md",
    ),
    Peer(
        name="BullMQ",
        store="Redis",
        program="with_bullmq.mjs",
        packages=("bullmq@6.7.0", "ioredis@5.8.2"),
        number="`job.attemptsStarted`",
        promise="Exactly once queue semantics, i.e., attempts to deliver every message exactly one time, "
        "but it will deliver at least once in the worst case scenario.",
        source="github.com/taskforcesh/bullmq, docs/gitbook/README.md",
    ),
)
