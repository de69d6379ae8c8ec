"""The systems that are measured: pinned versions, how many worker processes, and what each guarantees.

How each is set up is in its program, beside the code that uses it; the program's `settings` tells it."""

from dataclasses import dataclass, replace
from pathlib import Path

from freeze.peers import PEERS
from servers import Kind

PROGRAMS = Path(__file__).parent / "programs"
OURS = "holdfast"
_PINNED = {peer.key: peer.packages for peer in PEERS}
_FROZEN = "refused or not: measured, freeze.md"


@dataclass(frozen=True)
class Guarantees:
    """What its figures buy. `acked` says when a job counts as taken for good; `source` where this is from."""

    events: str
    zombies: str
    history: str
    acked: str
    durable: str
    source: str


@dataclass(frozen=True)
class System:
    """One row of the tables. `variant` is passed to the program and named in the title; `revision` is that
    of another checkout of ours."""

    name: str
    store: Kind
    program: str
    packages: tuple[str, ...]
    guarantees: Guarantees
    processes: int = 2
    variant: str = ""
    revision: str = ""

    @property
    def key(self) -> str:
        """The folder of its environment."""
        return self.program.removeprefix("run_").partition(".")[0]

    @property
    def title(self) -> str:
        words = f", {self.variant}" if self.variant else ""
        return f"{self.name} ({self.store}{words})"

    @property
    def version(self) -> str:
        if not self.packages:
            return self.revision
        return self.packages[0].rpartition("==")[2].rpartition("@")[2].removeprefix("v")

    @property
    def ours(self) -> bool:
        return self.name == OURS


_HOLDFAST = System(
    name=OURS,
    store="SQLite",
    program="run_holdfast.py",
    packages=(),
    processes=1,
    guarantees=Guarantees(
        events="yes, 4 rows per job",
        zombies="yes",
        history="yes: record and events",
        acked="after",
        durable="yes",
        source="our README.md and freeze.md",
    ),
)

_SAQ = System(
    name="SAQ",
    store="PostgreSQL",
    program="run_saq.py",
    packages=("saq[postgres,redis,hiredis]==0.26.4", "psycopg[binary]==3.3.8"),
    guarantees=Guarantees(
        events="no",
        zombies="no",
        history="none, as set here (`ttl`)",
        acked="after",
        durable="yes",
        source=f"github.com/tobymao/saq, README.md; {_FROZEN}",
    ),
)

_GRAPHILE = System(
    name="Graphile Worker",
    store="PostgreSQL",
    program="run_graphile-worker.mjs",
    packages=_PINNED["graphile-worker"],
    variant="local queue",
    guarantees=Guarantees(
        events="no",
        zombies="no",
        history="none: row deleted",
        acked="after",
        durable="yes",
        source=f"worker.graphile.org/docs; {_FROZEN}",
    ),
)

_HUEY = System(
    name="huey",
    store="SQLite",
    program="run_huey.py",
    packages=("huey==3.5.4",),
    processes=1,
    variant="durable",
    guarantees=Guarantees(
        events="no",
        zombies="not tried",
        history="none: row deleted",
        acked="before",
        durable="yes",
        source="huey.readthedocs.io, `SqliteHuey`; `huey/storage.py` in the package",
    ),
)

SYSTEMS = (
    _HOLDFAST,
    replace(_HOLDFAST, store="PostgreSQL", processes=2),
    System(
        name="Procrastinate",
        store="PostgreSQL",
        program="run_procrastinate.py",
        packages=_PINNED["procrastinate"],
        guarantees=Guarantees(
            events="yes, by a trigger",
            zombies="no",
            history="yes: row and events",
            acked="after",
            durable="yes",
            source=f"`procrastinate/sql/schema.sql` in the package; {_FROZEN}",
        ),
    ),
    System(
        name="PgQueuer",
        store="PostgreSQL",
        program="run_pgqueuer.py",
        packages=_PINNED["pgqueuer"],
        guarantees=Guarantees(
            events="yes, 3 log rows per job",
            zombies="no",
            history="log rows; row deleted",
            acked="after",
            durable="yes",
            source=f"github.com/janbjorge/pgqueuer, docs; {_FROZEN}",
        ),
    ),
    System(
        name="awa",
        store="PostgreSQL",
        program="run_awa.py",
        packages=_PINNED["awa"],
        guarantees=Guarantees(
            events="no",
            zombies="yes",
            history="completions, as arrays, for seconds",
            acked="after",
            durable="yes",
            source=f"github.com/hardbyte/awa, README.md; {_FROZEN}",
        ),
    ),
    System(
        name="chancy",
        store="PostgreSQL",
        program="run_chancy.py",
        packages=_PINNED["chancy"],
        guarantees=Guarantees(
            events="no",
            zombies="yes",
            history="row, until pruned",
            acked="after, up to 0.1 s later",
            durable="yes",
            source=f"tkte.ch/chancy; `chancy/plugins/recovery.py` in the package; {_FROZEN}",
        ),
    ),
    System(
        name="pg-boss",
        store="PostgreSQL",
        program="run_pg-boss.mjs",
        packages=_PINNED["pg-boss"],
        guarantees=Guarantees(
            events="no",
            zombies="yes",
            history="row, until retention ends",
            acked="after",
            durable="yes",
            source=f"github.com/timgit/pg-boss, docs; {_FROZEN}",
        ),
    ),
    _GRAPHILE,
    replace(_GRAPHILE, variant="no local queue"),
    System(
        name="River",
        store="PostgreSQL",
        program="run_river.go",
        packages=(
            "github.com/riverqueue/river@v0.51.0",
            "github.com/riverqueue/river/riverdriver/riverpgxv5@v0.51.0",
        ),
        guarantees=Guarantees(
            events="no",
            zombies="not tried",
            history="row, for 24 hours",
            acked="after, in batches",
            durable="yes",
            source="riverqueue.com/docs (benchmarks, batch-job-insertion); `client.go` in the module",
        ),
    ),
    System(
        name="DBOS",
        store="PostgreSQL",
        program="run_dbos.py",
        packages=("dbos==3.4.0", "psycopg[binary]==3.3.9", "sqlalchemy==2.1.8"),
        guarantees=Guarantees(
            events="no (a row per step, of which these jobs have none)",
            zombies="not tried",
            history="yes: row with input and output, kept for good",
            acked="after",
            durable="yes",
            source="docs.dbos.dev/python (queues, client, recovery); `dbos/_queue.py` in the package",
        ),
    ),
    _SAQ,
    replace(
        _SAQ,
        store="Redis",
        guarantees=replace(
            _SAQ.guarantees,
            zombies="not tried here (no on PostgreSQL)",
            history="none, as set here (`ttl`)",
            durable="no: AOF every second",
        ),
    ),
    System(
        name="Celery",
        store="Redis",
        program="run_celery.py",
        packages=_PINNED["celery"],
        guarantees=Guarantees(
            events="no (events to watchers only)",
            zombies="no",
            history="none here; results where a backend keeps them",
            acked="after, as set here; before by default",
            durable="no: AOF every second",
            source=f"docs.celeryq.dev, userguide/tasks; {_FROZEN}",
        ),
    ),
    System(
        name="RQ",
        store="Redis",
        program="run_rq.py",
        packages=_PINNED["rq"],
        guarantees=Guarantees(
            events="no",
            zombies="no",
            history="job and result for 500 s",
            acked="after",
            durable="no: AOF every second",
            source=f"python-rq.org/docs; {_FROZEN}",
        ),
    ),
    System(
        name="Dramatiq",
        store="Redis",
        program="run_dramatiq.py",
        packages=_PINNED["dramatiq"],
        guarantees=Guarantees(
            events="no",
            zombies="no",
            history="none: message deleted",
            acked="after",
            durable="no: AOF every second",
            source=f"dramatiq.io/guide; {_FROZEN}",
        ),
    ),
    System(
        name="BullMQ",
        store="Redis",
        program="run_bullmq.mjs",
        packages=_PINNED["bullmq"],
        guarantees=Guarantees(
            events="a stream, trimmed to about 10,000",
            zombies="yes",
            history="job, unless `removeOnComplete`, as here",
            acked="after",
            durable="no: AOF every second",
            source=f"docs.bullmq.io; {_FROZEN}",
        ),
    ),
    System(
        name="taskiq",
        store="Redis",
        program="run_taskiq.py",
        packages=("taskiq==0.13.0", "taskiq-redis==1.2.4", "orjson==3.13.0", "uvloop==0.23.0"),
        variant="stream",
        guarantees=Guarantees(
            events="no",
            zombies="not tried",
            history="stream entry, until trimmed",
            acked="after",
            durable="no: AOF every second",
            source="taskiq-python.github.io, guide; github.com/taskiq-python/taskiq-redis, README.md",
        ),
    ),
    _HUEY,
    replace(
        _HUEY,
        variant="sync off",
        guarantees=replace(_HUEY.guarantees, durable="no: left to the system"),
    ),
)
