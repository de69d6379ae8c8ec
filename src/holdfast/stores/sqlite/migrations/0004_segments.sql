-- A job has one row that never changes and one narrow row that does. The log is kept in segments.
DROP VIEW job_event_log;
DROP INDEX job_ready;
DROP INDEX job_due;
DROP INDEX job_rare;
ALTER TABLE job RENAME TO old_job;

-- One row per combination that ever had a job: a claim reads only the lanes that fit. `kind` is the kind under
-- which claims find the job; `locking` says whether the jobs need a resource lock.
CREATE TABLE lane (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    executor TEXT,
    region   TEXT,
    locking  INTEGER NOT NULL
) STRICT;
CREATE INDEX lane_of ON lane (queue, priority, kind, executor, region, locking);

-- Instants are microseconds since 1970 in UTC. What the lane says is not in spec. Without a payload here, spec is
-- the whole spec, as schema 3 kept it.
CREATE TABLE job (
    seq            INTEGER PRIMARY KEY,
    job_id         TEXT NOT NULL CONSTRAINT a_job_is_made_once UNIQUE,
    lane           INTEGER NOT NULL,
    lock           TEXT,
    created_at     INTEGER NOT NULL,
    correlation_id TEXT,
    submitted_by   TEXT,
    origin         TEXT,
    spec           TEXT,
    payload        TEXT
) STRICT;

-- `log` has the numbers of the segments with the job's events. `detail` is what no query asks for; the lease is in
-- the claim until it is renewed.
CREATE TABLE state (
    seq           INTEGER PRIMARY KEY,
    state         TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    transition_no INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    ready_at      INTEGER NOT NULL,
    due_at        INTEGER,
    updated_at    INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER,
    claim         INTEGER,
    log           TEXT NOT NULL,
    detail        TEXT
) STRICT;

-- The queued jobs. `until` is the job's own deadline.
CREATE TABLE ready (
    lane     INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    until    INTEGER,
    lock     TEXT,
    PRIMARY KEY (lane, ready_at, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX ready_lock ON ready (lane, lock, ready_at, seq) WHERE lock IS NOT NULL;

-- Every job with a due_at is in an alarm that goes off at that time or before. Then its jobs are looked at.
CREATE TABLE alarm (
    id     INTEGER PRIMARY KEY,
    due_at INTEGER NOT NULL,
    jobs   TEXT NOT NULL
) STRICT;
CREATE INDEX alarm_due ON alarm (due_at);

-- What a repeated claim is answered from, and the lease as it was granted.
CREATE TABLE claim (
    id    INTEGER PRIMARY KEY,
    op_id TEXT NOT NULL UNIQUE,
    owner TEXT,
    lease TEXT,
    jobs  TEXT NOT NULL
) STRICT;

CREATE TABLE rare (
    state TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (state, seq)
) STRICT, WITHOUT ROWID;

-- The registry's events of one type in one commit (core/segment.py). They all occurred at the same time. There are
-- few types, so that what occurred at a time is found by an index that begins with the type.
CREATE TABLE segment (
    number      INTEGER PRIMARY KEY,
    event_type  TEXT NOT NULL,
    occurred_at INTEGER NOT NULL,
    events      TEXT NOT NULL
) STRICT;
CREATE INDEX segment_type ON segment
    (event_type, strftime('%Y-%m-%dT%H:%M:%fZ', occurred_at / 1e6, 'unixepoch'));

-- The workers that have announced themselves lately. The record is the whole worker.
CREATE TABLE worker (
    name     TEXT NOT NULL,
    instance TEXT NOT NULL,
    seen_at  INTEGER NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (name, instance)
) STRICT, WITHOUT ROWID;

INSERT INTO lane (queue, priority, kind, executor, region, locking)
SELECT DISTINCT queue, priority, kind, executor, region, lock IS NOT NULL FROM old_job;

INSERT INTO claim (op_id, owner, jobs)
SELECT event.op_id,
       max(CASE WHEN old_job.detail ->> '$.claim_op_id' = event.op_id THEN old_job.owner END),
       json_group_array(event.job)
FROM event JOIN old_job ON old_job.seq = event.job
WHERE event.event_type = 'job_claimed' AND event.op_id IS NOT NULL
GROUP BY event.op_id;
INSERT INTO claim (op_id, owner, jobs)
SELECT detail ->> '$.claim_op_id', max(owner), json_group_array(seq)
FROM old_job
WHERE detail ->> '$.claim_op_id' IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM claim WHERE claim.op_id = detail ->> '$.claim_op_id')
GROUP BY detail ->> '$.claim_op_id';

INSERT INTO job (seq, job_id, lane, lock, created_at, correlation_id, submitted_by, origin, spec, payload)
SELECT seq, job_id,
       (SELECT id FROM lane
        WHERE lane.queue = old_job.queue AND lane.priority = old_job.priority AND lane.kind = old_job.kind
          AND lane.executor IS old_job.executor AND lane.region IS old_job.region
          AND lane.locking = (old_job.lock IS NOT NULL)),
       lock, created_at, detail ->> '$.correlation_id', detail ->> '$.submitted_by',
       nullif(json_patch('{}', json_object('trace_id', detail ->> '$.trace_id',
                                           'traceparent', detail ->> '$.traceparent')), '{}'),
       spec, NULL
FROM old_job ORDER BY seq;

-- The moment in detail is text with up to six digits after the second.
INSERT INTO state (seq, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at, due_at,
                   updated_at, started_at, ended_at, claim, log, detail)
SELECT seq, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at, due_at, updated_at,
       unixepoch(substr(detail ->> '$.started_at', 1, 19)) * 1000000
           + CAST(substr(rtrim(substr(detail ->> '$.started_at', 21), 'Z') || '000000', 1, 6) AS INTEGER),
       ended_at,
       (SELECT id FROM claim WHERE claim.op_id = detail ->> '$.claim_op_id'),
       '', detail
FROM old_job ORDER BY seq;

INSERT INTO ready (lane, ready_at, seq, until, lock)
SELECT job.lane, state.ready_at, state.seq, state.due_at, job.lock
FROM state JOIN job ON job.seq = state.seq
WHERE state.state = 'queued' ORDER BY job.lane, state.ready_at, state.seq;

INSERT INTO alarm (due_at, jobs)
SELECT min(due_at), json_group_array(seq)
FROM (SELECT due_at, seq, (row_number() OVER (ORDER BY due_at, seq)) / 500 AS part
      FROM state WHERE due_at IS NOT NULL)
GROUP BY part;

INSERT INTO rare (state, seq)
SELECT state, seq FROM state
WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered')
ORDER BY state, seq;

DROP TABLE old_job;
DROP INDEX event_claim;

-- Numbers of segments continue where the numbers of events ended.
INSERT INTO meta (name, value)
SELECT 'log_floor', max(coalesce((SELECT max(log_id) FROM event), 0),
                        coalesce((SELECT value FROM meta WHERE name = 'log_floor'), 0))
WHERE true
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- From here on all events of a batch have one type. Earlier batches of several types have none.
UPDATE event SET event_type = ''
WHERE sequence IS NOT NULL
  AND instr(replace(body, '"event_type":"' || event_type || '"', ''), '"event_type":"') > 0;
CREATE INDEX event_type ON event
    (event_type, strftime('%Y-%m-%dT%H:%M:%fZ', occurred_at / 1e6, 'unixepoch')) WHERE event_offset IS NULL;
CREATE INDEX event_time ON event
    (strftime('%Y-%m-%dT%H:%M:%fZ', occurred_at / 1e6, 'unixepoch')) WHERE event_offset IS NULL;

-- What SQLite believes of the sizes, until somebody analyses the file: a whole log is read segment by segment, and a
-- job's from the job on.
ANALYZE meta;
DELETE FROM sqlite_stat1;
INSERT INTO sqlite_stat1 (tbl, idx, stat)
VALUES ('job', 'sqlite_autoindex_job_1', '1000000 1'), ('state', NULL, '1000000'),
       ('segment', 'segment_type', '10000 500 1');

-- One row per event. Each part can be read from the job on, by its log, and from the type or the time on.
CREATE VIEW job_event_log AS
SELECT
    segment.number * 1048576
        + coalesce(segment.events ->> ('$.at[' || item.key || ']'), coalesce(segment.events ->> '$.at', 0) + item.key)
        AS log_id,
    job.job_id || '/' || CASE json_type(segment.events, '$.offset') WHEN 'array'
         THEN segment.events ->> ('$.offset[' || item.key || ']') ELSE segment.events ->> '$.offset' END AS event_id,
    segment.event_type AS event_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', segment.occurred_at / 1e6, 'unixepoch') AS occurred_at,
    job.job_id AS job_id,
    CASE json_type(segment.events, '$.task_id') WHEN 'array'
         THEN segment.events ->> ('$.task_id[' || item.key || ']') ELSE segment.events ->> '$.task_id' END AS task_id,
    coalesce(CASE json_type(segment.events, '$.execution_id') WHEN 'array'
         THEN segment.events ->> ('$.execution_id[' || item.key || ']') ELSE segment.events ->> '$.execution_id' END,
        job.job_id || '#' || CASE json_type(segment.events, '$.attempt') WHEN 'array'
         THEN segment.events ->> ('$.attempt[' || item.key || ']') ELSE segment.events ->> '$.attempt' END) AS execution_id,
    coalesce(CASE json_type(segment.events, '$.trace_id') WHEN 'array'
         THEN segment.events ->> ('$.trace_id[' || item.key || ']') ELSE segment.events ->> '$.trace_id' END,
        job.origin ->> '$.trace_id') AS trace_id,
    CASE json_type(segment.events, '$.span_id') WHEN 'array'
         THEN segment.events ->> ('$.span_id[' || item.key || ']') ELSE segment.events ->> '$.span_id' END AS span_id,
    CASE json_type(segment.events, '$.attributes') WHEN 'array'
         THEN segment.events -> ('$.attributes[' || item.key || ']') ELSE segment.events -> '$.attributes' END AS attributes,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(CASE json_type(segment.events, '$.received_at') WHEN 'array'
         THEN segment.events ->> ('$.received_at[' || item.key || ']') ELSE segment.events ->> '$.received_at' END, segment.occurred_at) / 1e6, 'unixepoch')
        AS received_at
FROM segment
JOIN json_each(CASE json_type(segment.events, '$.job') WHEN 'array' THEN segment.events -> '$.job'
    ELSE '[' || substr(replace(hex(zeroblob(segment.events ->> '$.n')), '00', ',' || (segment.events ->> '$.job')), 2)
         || ']' END) AS item
JOIN job ON job.seq = item.value
JOIN state ON state.seq = job.seq
WHERE segment.number IN (SELECT value FROM json_each('[' || state.log || ']'))
UNION ALL
SELECT
    event.log_id,
    job.job_id || '/' || event.event_offset,
    event.event_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', event.occurred_at / 1e6, 'unixepoch'),
    job.job_id,
    event.body ->> '$.task_id',
    coalesce(event.body ->> '$.execution_id', job.job_id || '#' || event.attempt),
    coalesce(event.body ->> '$.trace_id', job.origin ->> '$.trace_id'),
    event.body ->> '$.span_id',
    event.body -> '$.attributes',
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(event.received_at, event.occurred_at) / 1e6, 'unixepoch')
FROM event JOIN job ON job.seq = event.job
WHERE event.event_offset IS NOT NULL
UNION ALL
SELECT
    event.log_id,
    event.given_id,
    event.event_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', event.occurred_at / 1e6, 'unixepoch'),
    event.about,
    event.body ->> '$.task_id',
    event.body ->> '$.execution_id',
    event.body ->> '$.trace_id',
    event.body ->> '$.span_id',
    event.body -> '$.attributes',
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(event.received_at, event.occurred_at) / 1e6, 'unixepoch')
FROM event
WHERE event.given_id IS NOT NULL AND event.event_offset IS NULL
UNION ALL
SELECT
    event.log_id,
    job.job_id || '/' || event.attempt || '.' || event.fencing_token || '.' || (item.value ->> '$.sequence'),
    event.event_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', event.occurred_at / 1e6, 'unixepoch'),
    job.job_id,
    item.value ->> '$.task_id',
    coalesce(item.value ->> '$.execution_id', job.job_id || '#' || event.attempt),
    coalesce(item.value ->> '$.trace_id', job.origin ->> '$.trace_id'),
    item.value ->> '$.span_id',
    item.value,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(event.received_at, event.occurred_at) / 1e6, 'unixepoch')
FROM event JOIN job ON job.seq = event.job JOIN json_each(event.body) AS item
WHERE event.sequence IS NOT NULL AND event.event_offset IS NULL AND event.event_type > ''
UNION ALL
SELECT
    event.log_id,
    job.job_id || '/' || event.attempt || '.' || event.fencing_token || '.' || (item.value ->> '$.sequence'),
    item.value ->> '$.event_type',
    strftime('%Y-%m-%dT%H:%M:%fZ', event.occurred_at / 1e6, 'unixepoch'),
    job.job_id,
    item.value ->> '$.task_id',
    coalesce(item.value ->> '$.execution_id', job.job_id || '#' || event.attempt),
    coalesce(item.value ->> '$.trace_id', job.origin ->> '$.trace_id'),
    item.value ->> '$.span_id',
    item.value,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(event.received_at, event.occurred_at) / 1e6, 'unixepoch')
FROM event JOIN job ON job.seq = event.job JOIN json_each(event.body) AS item
WHERE event.sequence IS NOT NULL AND event.event_offset IS NULL AND event.event_type = '';
