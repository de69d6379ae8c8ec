-- Code that knows migration 4 can work with what this one leaves.

-- Whole tables are read and written here, which the settings of a store's sessions would make slow.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL plan_cache_mode = auto;

-- Whatever writes events or facts has a lock on this table as well, and may have had theirs first.
LOCK TABLE holdfast.job IN ACCESS EXCLUSIVE MODE;

-- What changes about a job. No index but its key, so that every update stays in its page (HOT). log has the
-- commits with the job's registry events. A detail of NULL is the one that the last of these commits gave to
-- all of its jobs: see segment.
CREATE TABLE holdfast.state (
    seq           bigint NOT NULL,
    fencing_token bigint NOT NULL,
    ready_at      timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    due_at        timestamptz,
    ended_at      timestamptz,
    attempt       integer NOT NULL,
    version       integer NOT NULL,
    transition_no integer NOT NULL,
    failures      integer NOT NULL,
    crashes       integer NOT NULL,
    state         text NOT NULL,
    owner         text,
    log           bigint[] NOT NULL,
    detail        json
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

INSERT INTO holdfast.state
SELECT seq, fencing_token, ready_at, updated_at, due_at, ended_at, attempt, version, transition_no, failures,
       crashes, state, owner, '{}', detail
FROM holdfast.job;

ALTER TABLE holdfast.state ADD PRIMARY KEY (seq);

-- Jobs that the same claims fit; those that need a resource lock have lanes of their own. Never removed: there
-- are few.
CREATE TABLE holdfast.lane (
    id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    text NOT NULL,
    priority smallint NOT NULL,
    kind     text NOT NULL,
    executor text NOT NULL,
    region   text NOT NULL,
    locking  boolean NOT NULL,
    CONSTRAINT a_lane_is_made_once UNIQUE (queue, priority, kind, executor, region, locking)
);

INSERT INTO holdfast.lane (queue, priority, kind, executor, region, locking)
SELECT DISTINCT queue, priority, kind, coalesce(executor, ''), coalesce(region, ''), lock IS NOT NULL
FROM holdfast.job;

-- The workers that have announced themselves lately. The record is the whole worker.
CREATE TABLE holdfast.worker (
    name     text NOT NULL,
    instance text NOT NULL,
    seen_at  timestamptz NOT NULL,
    record   json NOT NULL,
    PRIMARY KEY (name, instance)
);

-- The queued jobs. The rows of lane n have n or -n: n for jobs in the order in which they come, which are read
-- from a mark on; -n for all that may land before such a mark (returned, late or in a transaction of the
-- caller's) or keep their place for long (with a lock), which are read from the first on.
CREATE TABLE holdfast.ready (
    lane     integer NOT NULL,
    ready_at timestamptz NOT NULL,
    seq      bigint NOT NULL,
    until    timestamptz,
    lock     text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

INSERT INTO holdfast.ready
SELECT CASE WHEN job.lock IS NULL THEN lane.id ELSE -lane.id END, job.ready_at, job.seq, job.due_at, job.lock
FROM holdfast.job JOIN holdfast.lane
  ON lane.queue = job.queue AND lane.priority = job.priority AND lane.kind = job.kind
 AND lane.executor = coalesce(job.executor, '') AND lane.region = coalesce(job.region, '')
 AND lane.locking = (job.lock IS NOT NULL)
WHERE job.state = 'queued';

ALTER TABLE holdfast.ready ADD PRIMARY KEY (lane, ready_at, seq);

-- For the first job of each lock. Sorted by bytes, which is faster and is the same on every system.
CREATE INDEX ready_lock ON holdfast.ready (lane, lock COLLATE "C", ready_at, seq) WHERE lock IS NOT NULL;

-- When jobs have to be looked at: one row for those of one commit, at the time when the first is due.
CREATE TABLE holdfast.alarm (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    due_at timestamptz NOT NULL,
    jobs   bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

INSERT INTO holdfast.alarm (due_at, jobs)
SELECT min(due_at), array_agg(seq)
FROM (SELECT seq, due_at, (row_number() OVER (ORDER BY due_at, seq) - 1) / 500 AS part
      FROM holdfast.job WHERE due_at IS NOT NULL) AS timed
GROUP BY part;

CREATE INDEX alarm_due ON holdfast.alarm (due_at, id);

-- The jobs in a state in which no job is that simply succeeds, for listings.
CREATE TABLE holdfast.rare (
    state text NOT NULL,
    seq   bigint NOT NULL
);

INSERT INTO holdfast.rare
SELECT state, seq FROM holdfast.job
WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered');

ALTER TABLE holdfast.rare ADD PRIMARY KEY (state, seq);

-- The registry events of one type in one commit (core/segment.py). The number of an event in the log is
-- commit << 20 | place, and size is how many places the segment had at first. detail is that of all jobs of the
-- commit, if they have the same; the first segment has it, whose events are of all these jobs.
CREATE TABLE holdfast.segment (
    commit      bigint NOT NULL,
    place       integer NOT NULL,
    size        integer NOT NULL,
    event_type  text NOT NULL,
    occurred_at timestamptz NOT NULL,
    events      json NOT NULL,
    detail      json,
    PRIMARY KEY (commit, place)
);

DO $$
BEGIN
    ALTER TABLE holdfast.segment ALTER COLUMN events SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

CREATE INDEX segment_type ON holdfast.segment (event_type, occurred_at);
CREATE INDEX segment_time ON holdfast.segment USING brin (occurred_at);

DROP VIEW holdfast.job_event_log;
DROP FUNCTION holdfast.agree(bigint, bigint, boolean);
DROP FUNCTION holdfast.base();
DROP TYPE holdfast.new_job, holdfast.changed_job, holdfast.touched_job, holdfast.new_resource,
          holdfast.changed_resource, holdfast.claimed_job, holdfast.new_event, holdfast.new_fact,
          holdfast.changed_count;

-- A job row never changes from here on. origin is what never changes of the rest of a record; for jobs from
-- before this migration it has more, which is not read.
ALTER TABLE holdfast.job
    DROP COLUMN state, DROP COLUMN attempt, DROP COLUMN version, DROP COLUMN transition_no,
    DROP COLUMN failures, DROP COLUMN crashes, DROP COLUMN fencing_token, DROP COLUMN owner,
    DROP COLUMN lease_expires_at, DROP COLUMN ready_at, DROP COLUMN due_at, DROP COLUMN updated_at,
    DROP COLUMN ended_at;
ALTER TABLE holdfast.job RENAME COLUMN detail TO origin;
ALTER TABLE holdfast.job SET (fillfactor = 100);

-- The whole record of each job.
CREATE VIEW holdfast.record AS
SELECT job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.ready_at, job.created_at, state.updated_at, state.ended_at,
       job.spec, job.origin, coalesce(state.detail, segment.detail) AS detail,
       state.owner, state.due_at, job.queue, job.region, job.kind
FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq
LEFT JOIN holdfast.segment
  ON segment.commit = CASE WHEN state.detail IS NULL THEN state.log[cardinality(state.log)] END
 AND segment.place = 0;
