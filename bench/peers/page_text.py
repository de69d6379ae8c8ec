"""The text of the page around its tables."""

PREFACE = """\
All in one run on one machine, in turns: every round goes through all systems, each on an empty store of
its own. Jobs do nothing. Every system has an environment of its own and the settings that its
documentation recommends for many small jobs; they are printed below. PostgreSQL and Redis are started by
the run: fsync and synchronous_commit on, 512 MB shared_buffers; Redis with AOF every second. SQLite lies
on the same disk.

The numbers do not mean the same everywhere: some of these systems keep a history, refuse late completions
and are durable when they answer, and some are not. The table of guarantees below says who is which.
"""

VERDICTS = """\
- *before* is holdfast of another commit, in the same run, with an environment of its own.
- *no options* is a worker as its documentation starts one; everywhere else holdfast runs with `-c 1000`.
- *server CPU* and *WAL* are of a drain. Bytes per ended job are what the store grew by from before the
  enqueue until all jobs had ended, after a `VACUUM` or a checkpoint.
- *snapshot*: two stores of each system take {rate} jobs a second for {seconds} s and run them, while another
  session holds a snapshot of one of them; then both are drained in turns, with the snapshot still held.
  *undisturbed* is the other store.
- *claims* are of 100 jobs, the median, in turns with an almost empty store: behind {crowd} jobs that wait,
  behind as many that ended under somebody's snapshot, beside {unfit} that do not fit.
- *pages* are of 100 among all of these, by what few jobs have and by what none has; the worse of the two.
"""

COLUMNS = """\
- The best of all rounds; in brackets the least and the most. Rates depend on the machine, so compare
  rows.
- *bulk*: jobs per second by the quickest documented way to enqueue many. *one at a time*: each enqueue
  awaited before the next. *64 clients*: so many at the same time in one process, each awaiting its own.
- *drain*: {jobs} (and {long}) jobs that wait already, from the first handler until all handlers have
  begun and the store says that no job is left. On PostgreSQL after a `VACUUM ANALYZE`, which
  autovacuum would do by itself within a minute or so. What was fetched before the first handler began is
  a head start, the larger the more a system fetches at once: the longer drain shows less of it.
- *idle*: from just before an enqueue in another process until the handler begins, workers having nothing
  to do; {waits} times in each round.
"""

COSTS = """\
Per job of the drain: CPU of all processes of the workers; CPU of the PostgreSQL server and its
write-ahead log where that is the store. *kept*: by how much the store was larger when all jobs had ended
than before they were enqueued, after a `VACUUM` or a checkpoint. Memory is of all worker processes
together, shared pages counted in each.
"""

LIMITS = """\
A bare script that writes the rows holdfast writes, 500 at a time, just as durably, with no rules, no
worker and no handler: what the store allows on this machine. It ran before and after each round; where
the drains in order differ much, so did the machine.
"""

CLAIMS = """\
Jobs per second over the second half of the first {jobs}, with so many more queued behind them, after
`VACUUM ANALYZE` where the store is PostgreSQL; the best of the runs. *last to first* of 1 means that the
number makes no difference.
"""

SNAPSHOT = """\
Jobs per second of drains, in turns, of two stores that have had the same steady load; of one of them another
session has held a snapshot for {seconds} s and holds it still, so that no row that died since could be
removed.
"""

RECOVERY = """\
`kill -9` of all processes of the worker that has the job, while another one is idle beside it; how long
until the handler runs again. The limits are as short as each system sensibly allows; what matters is how
close to its own limit it comes.
"""

SOAK = """\
holdfast only, both stores at the same time, jobs coming in evenly; the recoveries above took place
meanwhile, from the second mark on. History is kept, so the stores grow; what would be bloat is what grows
faster than the jobs: bytes per finished job that rise, and space that is dead or free inside the tables.
"""

GUARANTEES = """\
*Refuses a zombie*: a worker that was frozen, lost its job to another and then finishes; measured in
[freeze.md](freeze.md). *taken off before*: a job that was begun and interrupted is lost. Redis with AOF
every second may lose the last second of what it has acknowledged when the machine loses power.
"""
