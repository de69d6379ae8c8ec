CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

-- Instants are microseconds since 1970 in UTC. What is asked for is in spec, what people and indexes
-- look for has a column, the rest of the record is in detail.
CREATE TABLE job (
    seq              INTEGER PRIMARY KEY,
    job_id           TEXT NOT NULL CONSTRAINT a_job_is_made_once UNIQUE,
    queue            TEXT NOT NULL,
    kind             TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    region           TEXT,
    executor         TEXT,
    lock             TEXT,
    state            TEXT NOT NULL,
    attempt          INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    transition_no    INTEGER NOT NULL,
    failures         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    fencing_token    INTEGER NOT NULL,
    owner            TEXT,
    lease_expires_at INTEGER,
    ready_at         INTEGER NOT NULL,
    due_at           INTEGER,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    ended_at         INTEGER,
    spec             TEXT NOT NULL,
    detail           TEXT NOT NULL
) STRICT;

-- The enqueue sequence is the rowid, which every index ends with.
CREATE INDEX job_ready ON job (queue, priority, ready_at) WHERE state = 'queued';
CREATE INDEX job_due ON job (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX job_dead_lettered ON job (seq) WHERE state = 'dead_lettered';

CREATE TABLE queue_count (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE resource (
    key    TEXT PRIMARY KEY,
    token  INTEGER NOT NULL,
    holder TEXT
) STRICT, WITHOUT ROWID;

-- One row per registry event, per batch of worker events, per fact. Each row is in one of the three
-- unique indexes, the one its event_id derives from. A fact names the job it is about, which need not
-- exist; the others refer to its row.
CREATE TABLE event (
    log_id        INTEGER PRIMARY KEY,
    job           INTEGER,
    event_offset  INTEGER,
    transition_no INTEGER,
    event_type    TEXT NOT NULL,
    event_class   TEXT NOT NULL,
    from_state    TEXT,
    to_state      TEXT,
    attempt       INTEGER,
    fencing_token INTEGER,
    sequence      INTEGER,
    end_sequence  INTEGER,
    op_id         TEXT,
    actor         TEXT,
    occurred_at   INTEGER NOT NULL,
    received_at   INTEGER,
    given_id      TEXT,
    about         TEXT,
    body          TEXT
) STRICT;

CREATE UNIQUE INDEX event_chain ON event (job, event_offset) WHERE event_offset IS NOT NULL;
CREATE UNIQUE INDEX event_worker ON event (job, fencing_token, sequence) WHERE sequence IS NOT NULL;
CREATE UNIQUE INDEX event_given ON event (given_id) WHERE given_id IS NOT NULL;
CREATE INDEX event_about ON event (about) WHERE given_id IS NOT NULL;
CREATE INDEX event_claim ON event (op_id) WHERE event_type = 'job_claimed';

CREATE VIEW job_event_log AS
SELECT
    event.log_id,
    coalesce(
        event.given_id,
        job.job_id || '/' || event.event_offset,
        job.job_id || '/' || event.attempt || '.' || event.fencing_token || '.' || event.sequence
    ) AS event_id,
    event.event_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', event.occurred_at / 1e6, 'unixepoch') AS occurred_at,
    coalesce(job.job_id, event.about) AS job_id,
    event.body ->> '$.task_id' AS task_id,
    coalesce(event.body ->> '$.execution_id', job.job_id || '#' || event.attempt) AS execution_id,
    coalesce(event.body ->> '$.trace_id', job.detail ->> '$.trace_id') AS trace_id,
    event.body ->> '$.span_id' AS span_id,
    CASE WHEN event.sequence IS NULL THEN event.body -> '$.attributes' ELSE event.body END AS attributes,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(event.received_at, event.occurred_at) / 1e6, 'unixepoch')
        AS received_at
FROM event
LEFT JOIN job ON job.seq = event.job;
