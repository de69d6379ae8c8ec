-- Code that knows migration 1 can work with what this one leaves.

CREATE TABLE holdfast.meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);

CREATE SEQUENCE holdfast.job_seq;
CREATE SEQUENCE holdfast.log_seq;

-- What is asked for is in spec, what people and indexes look for has a column, the rest of the record is
-- in detail. seq is the order of creation, and what events refer to.
CREATE TABLE holdfast.job (
    seq              bigint PRIMARY KEY,
    job_id           text NOT NULL CONSTRAINT a_job_is_made_once UNIQUE,
    queue            text NOT NULL,
    kind             text NOT NULL,
    priority         smallint NOT NULL,
    region           text,
    executor         text,
    lock             text,
    state            text NOT NULL,
    attempt          integer NOT NULL,
    version          bigint NOT NULL,
    transition_no    bigint NOT NULL,
    failures         integer NOT NULL,
    crashes          integer NOT NULL,
    fencing_token    bigint NOT NULL,
    owner            text,
    lease_expires_at timestamptz,
    ready_at         timestamptz NOT NULL,
    due_at           timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    ended_at         timestamptz,
    correlation_id   text,
    spec             json NOT NULL,
    detail           json NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

CREATE INDEX job_ready ON holdfast.job (queue, priority, ready_at, seq) WHERE state = 'queued';
CREATE INDEX job_due ON holdfast.job (due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX job_dead_lettered ON holdfast.job (seq) WHERE state = 'dead_lettered';
CREATE INDEX job_correlation ON holdfast.job (correlation_id) WHERE correlation_id IS NOT NULL;

-- One row per change of a count, added up now and then: commits never wait for one another here.
CREATE TABLE holdfast.queue_count (
    queue text NOT NULL,
    state text NOT NULL,
    jobs  bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE holdfast.resource (
    key    text PRIMARY KEY,
    token  bigint NOT NULL,
    holder text
);

-- One row per claim that got something: what a repeated claim is answered from.
CREATE TABLE holdfast.claim (
    op_id      text PRIMARY KEY,
    jobs       bigint[] NOT NULL,
    claimed_at timestamptz NOT NULL
);

-- One row per registry event and per batch of worker events. log_id is drawn while the job is locked, so
-- that within a job it follows the order of commits; place is the transaction, and below the oldest one
-- still under way everybody's commits are complete.
CREATE TABLE holdfast.event (
    log_id        bigint NOT NULL,
    place         bigint NOT NULL,
    job           bigint NOT NULL,
    event_offset  bigint,
    transition_no bigint,
    event_type    text NOT NULL,
    event_class   text NOT NULL,
    from_state    text,
    to_state      text,
    attempt       integer,
    fencing_token bigint,
    sequence      bigint,
    end_sequence  bigint,
    op_id         text,
    actor         text,
    occurred_at   timestamptz NOT NULL,
    received_at   timestamptz,
    body          json
) PARTITION BY RANGE (job);

CREATE UNIQUE INDEX event_chain ON holdfast.event (job, event_offset);
CREATE UNIQUE INDEX event_worker ON holdfast.event (job, fencing_token, sequence) WHERE sequence IS NOT NULL;
CREATE INDEX event_feed ON holdfast.event (place, log_id);
CREATE INDEX event_time ON holdfast.event USING brin (occurred_at);
CREATE INDEX event_rare ON holdfast.event (event_type, occurred_at)
    WHERE event_type NOT IN ('job_queued', 'job_claimed', 'job_started', 'job_succeeded', 'output');

-- Facts, and events of the caller's own: about a job, which need not exist, or about none.
CREATE TABLE holdfast.fact (
    log_id        bigint PRIMARY KEY,
    place         bigint NOT NULL,
    event_type    text NOT NULL,
    event_class   text NOT NULL,
    attempt       integer,
    fencing_token bigint,
    op_id         text,
    actor         text,
    occurred_at   timestamptz NOT NULL,
    received_at   timestamptz,
    given_id      text NOT NULL CONSTRAINT a_fact_is_told_once UNIQUE,
    about         text,
    body          json
);

CREATE INDEX fact_about ON holdfast.fact (about, log_id);
CREATE INDEX fact_feed ON holdfast.fact (place, log_id);
CREATE INDEX fact_type ON holdfast.fact (event_type, occurred_at);

-- What one commit brings, row by row. Code that knows this migration sends rows of just this shape; a later
-- one makes new types beside them.
CREATE TYPE holdfast.new_job AS (
    seq bigint, job_id text, queue text, kind text, priority smallint, region text, executor text,
    lock text, created_at timestamptz, correlation_id text, spec text,
    state text, attempt integer, version bigint, transition_no bigint, failures integer,
    crashes integer, fencing_token bigint, owner text, lease_expires_at timestamptz,
    ready_at timestamptz, due_at timestamptz, updated_at timestamptz, ended_at timestamptz, detail text
);
CREATE TYPE holdfast.changed_job AS (
    seq bigint, read_version bigint, read_token bigint, read_row xid,
    state text, attempt integer, version bigint, transition_no bigint, failures integer,
    crashes integer, fencing_token bigint, owner text, lease_expires_at timestamptz,
    ready_at timestamptz, due_at timestamptz, updated_at timestamptz, ended_at timestamptz, detail text
);
CREATE TYPE holdfast.touched_job AS (
    seq bigint, read_version bigint, read_token bigint, read_row xid,
    lease_expires_at timestamptz, due_at timestamptz, updated_at timestamptz, detail text
);
CREATE TYPE holdfast.new_resource AS (key text, token bigint, holder text);
CREATE TYPE holdfast.changed_resource AS (
    key text, token bigint, holder text, read_token bigint, read_holder text
);
CREATE TYPE holdfast.claimed_job AS (op_id text, job bigint);
CREATE TYPE holdfast.new_event AS (
    job bigint, event_offset bigint, transition_no bigint, event_type text, event_class text,
    from_state text, to_state text, attempt integer, fencing_token bigint, sequence bigint,
    end_sequence bigint, op_id text, actor text, occurred_at timestamptz, received_at timestamptz,
    body text
);
CREATE TYPE holdfast.new_fact AS (
    event_type text, event_class text, attempt integer, fencing_token bigint, op_id text, actor text,
    occurred_at timestamptz, received_at timestamptz, given_id text, about text, body text
);
CREATE TYPE holdfast.changed_count AS (queue text, state text, jobs bigint);

-- Where the places of this epoch begin. Read by every statement that writes or compares one, so that nobody
-- who was connected before a restore writes behind the cursors of after it.
CREATE FUNCTION holdfast.base() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT value::bigint FROM holdfast.meta WHERE name = 'epoch'), 0) << 48
$$;

-- Undo the whole commit when a row was not as it had been read, or when the wait for it took too long.
CREATE FUNCTION holdfast.agree(changed bigint, expected bigint, late boolean) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF late THEN
        RAISE EXCEPTION 'the locks of the rows were had too late'
            USING ERRCODE = 'serialization_failure';
    END IF;
    IF changed <> expected THEN
        RAISE EXCEPTION '% of % rows had changed since they were read', expected - changed, expected
            USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END
$$;

-- A record as PostgreSQL can take it apart: of all JSON, it refuses the character NUL.
CREATE FUNCTION holdfast.shown(record json) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN position('\u0000' IN record::text) = 0 THEN record
                ELSE replace(record::text, '\u0000', '\ufffd')::json END
$$;

CREATE VIEW holdfast.job_event_log AS
SELECT
    event.log_id,
    job.job_id || '/' || coalesce(
        event.event_offset::text,
        event.attempt || '.' || event.fencing_token || '.' || event.sequence
    ) AS event_id,
    event.event_type,
    event.occurred_at,
    job.job_id,
    shown.body ->> 'task_id' AS task_id,
    coalesce(shown.body ->> 'execution_id', job.job_id || '#' || event.attempt) AS execution_id,
    coalesce(shown.body ->> 'trace_id', shown.detail ->> 'trace_id') AS trace_id,
    shown.body ->> 'span_id' AS span_id,
    CASE WHEN event.sequence IS NULL THEN shown.body -> 'attributes' ELSE shown.body END AS attributes,
    coalesce(event.received_at, event.occurred_at) AS received_at
FROM holdfast.event JOIN holdfast.job ON job.seq = event.job
CROSS JOIN LATERAL (
    SELECT holdfast.shown(event.body) AS body, holdfast.shown(job.detail) AS detail) AS shown
UNION ALL
SELECT
    log_id, given_id, event_type, occurred_at, about, shown.body ->> 'task_id',
    shown.body ->> 'execution_id', shown.body ->> 'trace_id', shown.body ->> 'span_id',
    shown.body -> 'attributes', coalesce(received_at, occurred_at)
FROM holdfast.fact CROSS JOIN LATERAL (SELECT holdfast.shown(fact.body) AS body) AS shown;
