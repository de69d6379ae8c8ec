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
-- commit << 20 | place, and size is how many places the segment had at first. detail is that of all jobs of the commit, if they have the same; the first segment
-- has it, whose events are of all these jobs.
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

-- A commit announces itself before it draws its number, by a shared advisory lock whose key is the last number
-- drawn so far: its own is above. So a reader of the feed knows up to which number every commit is complete,
-- and waits for commits of ours only, not for any transaction of the server. A transaction of a caller's own
-- announces itself once: its first key covers all of its commits.
CREATE FUNCTION holdfast.draw_commit_4(external boolean) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    low bigint;
    mine text;
BEGIN
    IF external THEN
        mine := pg_current_xact_id()::text;
    END IF;
    IF mine IS NULL OR current_setting('holdfast.announced', true) IS DISTINCT FROM mine THEN
        low := coalesce(pg_sequence_last_value('holdfast.log_seq'::regclass), 0) & 4294967295;
        PERFORM pg_advisory_xact_lock_shared(
            hashtext('holdfast.feed'), (low - CASE WHEN low > 2147483647 THEN 4294967296 ELSE 0 END)::integer);
        IF external THEN
            PERFORM set_config('holdfast.announced', mine, true);
        END IF;
    END IF;
    RETURN nextval('holdfast.log_seq');
END
$$;

-- How many commits have had facts. A commit that has drawn its number before it has the locks of its rows is done
-- again when it has counted one meanwhile: the events and facts of a job are numbered in the order of their
-- commits.
CREATE SEQUENCE holdfast.fact_commit_seq;

-- The last number up to which every commit is complete, for a statement that begins after this one has ended.
CREATE FUNCTION holdfast.feed_end_4() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    drawn bigint := coalesce(pg_sequence_last_value('holdfast.log_seq'::regclass), 0);
BEGIN
    RETURN least(drawn, (
        SELECT min(drawn - ((drawn - objid::bigint) & 4294967295)) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND classid = (hashtext('holdfast.feed')::bigint & 4294967295)::oid));
END
$$;

-- One commit. Of every column there is an array, with one value for each row, or with a single one for all.
-- The first rows of the record's columns are those of new jobs, the others of jobs that are changed if they are
-- as they were read. Without ready_ats, the changed ones keep theirs. New jobs without numbers get theirs here, and so do their ready rows and their events:
-- then texts has what follows the keys of the jobs.
--
-- way: 0 waits for locks; 1 writes nothing, and waits for nothing, when one of its rows is locked or was changed;
-- 2 is part of a transaction of the caller's own; 3 has locked the rows of all its jobs before. A ready row that is to be deleted is never waited for: a claim
-- may hold it that waits for a job of ours.
CREATE FUNCTION holdfast.commit_4(
    way integer, moment timestamptz, deadline timestamptz, late_before timestamptz, steps text, channel text,
    payload text,
    job_ids text[], queues text[], kinds text[], priorities integer[], regions text[], executors text[],
    locks text[], created_ats timestamptz[], correlation_ids text[], specs text[], origins text[],
    numbers bigint[], read_versions integer[], read_tokens bigint[], read_rows integer[],
    states text[], attempts integer[], versions integer[], transition_nos integer[], failure_counts integer[],
    crash_counts integer[], tokens bigint[], owners text[], ready_ats timestamptz[], due_ats timestamptz[],
    updated_ats timestamptz[], ended_ats timestamptz[], details text[],
    put_numbers bigint[], put_lanes integer[], put_ready_ats timestamptz[], put_untils timestamptz[],
    put_locks text[],
    taken_numbers bigint[], taken_lanes integer[], taken_ready_ats timestamptz[],
    types text[], places integer[], sizes integer[], occurred_ats timestamptz[], texts text[], detail text,
    count_queues text[], count_states text[], count_jobs integer[],
    claim_ops text[], claim_numbers bigint[],
    alarm_at timestamptz, alarm_numbers bigint[],
    rest json,
    OUT wrote boolean, OUT facts integer, OUT row_version xid, OUT now timestamptz, OUT last_number bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    created integer := cardinality(job_ids);
    changed integer := cardinality(numbers);
    taken integer := cardinality(taken_numbers);
    drawn bigint[];
    number bigint;
    fact_commits bigint;
    expected integer;
    found integer;
BEGIN
    wrote := true;
    facts := 0;
    IF created > 0 AND changed = 0 THEN
        drawn := ARRAY(SELECT nextval('holdfast.job_seq') FROM generate_series(1, created));
        numbers := drawn;
        put_numbers := drawn;
        alarm_numbers := drawn;
        last_number := drawn[created];
        texts[1] := '{"n":' || created || ',"job":'
            || CASE created WHEN 1 THEN last_number::text ELSE array_to_json(drawn)::text END || texts[1];
        changed := created;
    END IF;
    IF way = 1 THEN
        SELECT count(*) INTO found FROM (
            SELECT FROM unnest(numbers, read_versions, read_tokens, read_rows) AS new(seq, version, token, xid)
            JOIN holdfast.state
              ON state.seq = new.seq AND state.version = coalesce(new.version, read_versions[1])
             AND state.fencing_token = coalesce(new.token, read_tokens[1])
             AND state.xmin = coalesce(new.xid, read_rows[1])
            FOR NO KEY UPDATE OF state SKIP LOCKED) AS had;
        expected := changed;
        IF found = expected AND taken > 0 THEN
            SELECT count(*) INTO found FROM (
                SELECT FROM unnest(taken_numbers, taken_lanes, taken_ready_ats) AS old(seq, lane, ready_at)
                JOIN holdfast.ready
                  ON ready.lane = ANY(ARRAY[coalesce(old.lane, taken_lanes[1]), -coalesce(old.lane, taken_lanes[1])])
                 AND ready.ready_at = coalesce(old.ready_at, taken_ready_ats[1]) AND ready.seq = old.seq
                FOR UPDATE OF ready SKIP LOCKED) AS had;
            expected := taken;
        END IF;
        IF found <> expected THEN
            wrote := false;
            RETURN;
        END IF;
    END IF;
    IF rest IS NOT NULL AND rest -> 'facts' IS NOT NULL THEN
        -- The numbers of a job's facts follow the order of their commits.
        PERFORM FROM holdfast.state
        WHERE state.seq = ANY(ARRAY(
            SELECT job.seq FROM holdfast.job
            WHERE job_id = ANY(ARRAY(SELECT fact ->> 'about' FROM json_array_elements(rest -> 'facts') AS fact))))
        ORDER BY state.seq FOR NO KEY UPDATE;
        PERFORM pg_advisory_xact_lock(hashtext('holdfast.fact'), bucket)
        FROM (SELECT DISTINCT hashtext(fact ->> 'about') & 1023 AS bucket
              FROM json_array_elements(rest -> 'facts') AS fact
              WHERE fact ->> 'about' IS NOT NULL ORDER BY bucket) AS buckets;
    END IF;
    IF cardinality(types) > 0 OR rest -> 'facts' IS NOT NULL OR rest -> 'output' IS NOT NULL THEN
        IF way <> 3 AND changed > created THEN
            fact_commits := coalesce(pg_sequence_last_value('holdfast.fact_commit_seq'::regclass), 0);
        END IF;
        number := holdfast.draw_commit_4(way = 2);
        IF rest -> 'facts' IS NOT NULL THEN
            PERFORM nextval('holdfast.fact_commit_seq');
            fact_commits := fact_commits + 1;
        END IF;
    END IF;
    IF created > 0 THEN
        -- What is the same for all is taken apart once, not for every row.
        INSERT INTO holdfast.job (seq, job_id, queue, kind, priority, region, executor, lock, created_at,
                                  correlation_id, spec, origin)
        SELECT new.seq, new.job_id, coalesce(new.queue, one.queue), coalesce(new.kind, one.kind),
               coalesce(new.priority, one.priority), coalesce(new.region, one.region),
               coalesce(new.executor, one.executor), coalesce(new.lock, one.lock),
               coalesce(new.created_at, one.created_at), coalesce(new.correlation_id, one.correlation_id),
               coalesce(new.spec::json, one.spec), coalesce(new.origin::json, one.origin)
        FROM (SELECT queues[1] AS queue, kinds[1] AS kind, priorities[1] AS priority,
                     CASE cardinality(regions) WHEN 1 THEN regions[1] END AS region,
                     CASE cardinality(executors) WHEN 1 THEN executors[1] END AS executor,
                     CASE cardinality(locks) WHEN 1 THEN locks[1] END AS lock, created_ats[1] AS created_at,
                     CASE cardinality(correlation_ids) WHEN 1 THEN correlation_ids[1] END AS correlation_id,
                     specs[1]::json AS spec, origins[1]::json AS origin OFFSET 0) AS one
        CROSS JOIN unnest(numbers[:created], job_ids, queues, kinds, priorities, regions, executors, locks, created_ats,
                          correlation_ids, specs, origins)
             AS new(seq, job_id, queue, kind, priority, region, executor, lock, created_at, correlation_id, spec,
                    origin);
        INSERT INTO holdfast.state (seq, fencing_token, ready_at, updated_at, due_at, ended_at, attempt, version,
                                    transition_no, failures, crashes, state, owner, log, detail)
        SELECT new.seq, coalesce(new.token, one.token), coalesce(new.ready_at, one.ready_at),
               coalesce(new.updated_at, one.updated_at), coalesce(new.due_at, one.due_at),
               coalesce(new.ended_at, one.ended_at), coalesce(new.attempt, one.attempt),
               coalesce(new.version, one.version), coalesce(new.transition_no, one.transition_no),
               coalesce(new.failures, one.failures), coalesce(new.crashes, one.crashes),
               coalesce(new.state, one.state), coalesce(new.owner, one.owner), one.log,
               coalesce(new.detail::json, one.detail)
        FROM (SELECT tokens[1] AS token, ready_ats[1] AS ready_at, updated_ats[1] AS updated_at,
                     CASE cardinality(due_ats) WHEN 1 THEN due_ats[1] END AS due_at,
                     CASE cardinality(ended_ats) WHEN 1 THEN ended_ats[1] END AS ended_at,
                     attempts[1] AS attempt, versions[1] AS version, transition_nos[1] AS transition_no,
                     failure_counts[1] AS failures, crash_counts[1] AS crashes, states[1] AS state,
                     CASE cardinality(owners) WHEN 1 THEN owners[1] END AS owner, ARRAY[number] AS log,
                     CASE cardinality(details) WHEN 1 THEN details[1] END::json AS detail OFFSET 0) AS one
        CROSS JOIN unnest(numbers[:created], states, attempts, versions, transition_nos, failure_counts, crash_counts,
                          tokens, owners, ready_ats, due_ats, updated_ats, ended_ats, details)
             AS new(seq, state, attempt, version, transition_no, failures, crashes, token, owner, ready_at, due_at,
                    updated_at, ended_at, detail)
        WHERE new.seq IS NOT NULL;
    END IF;
    IF changed > created THEN
        IF created = 0 AND greatest(
               cardinality(read_versions), cardinality(read_tokens), cardinality(states), cardinality(attempts),
               cardinality(versions), cardinality(transition_nos), cardinality(failure_counts),
               cardinality(crash_counts), cardinality(tokens), cardinality(owners), cardinality(due_ats),
               cardinality(updated_ats), cardinality(ended_ats), cardinality(details)) = 1 THEN
            -- Jobs that are alike: the same in a third less time.
            UPDATE holdfast.state
            SET fencing_token = one.token, ready_at = coalesce(new.ready_at, one.ready_at, state.ready_at),
                updated_at = one.updated_at, due_at = one.due_at, ended_at = one.ended_at, attempt = one.attempt,
                version = one.version, transition_no = one.transition_no, failures = one.failures,
                crashes = one.crashes, state = one.state, owner = one.owner,
                log = CASE WHEN one.version > state.version THEN state.log || number ELSE state.log END,
                detail = one.detail
            FROM (SELECT read_versions[1] AS read_version, read_tokens[1] AS read_token, read_rows[1] AS read_row,
                         tokens[1] AS token, ready_ats[1] AS ready_at, updated_ats[1] AS updated_at,
                         due_ats[1] AS due_at, ended_ats[1] AS ended_at, attempts[1] AS attempt,
                         versions[1] AS version, transition_nos[1] AS transition_no, failure_counts[1] AS failures,
                         crash_counts[1] AS crashes, states[1] AS state, owners[1] AS owner,
                         details[1]::json AS detail OFFSET 0) AS one
            CROSS JOIN unnest(numbers, read_rows, ready_ats) AS new(seq, read_row, ready_at)
            WHERE state.seq = new.seq AND state.version = one.read_version AND state.fencing_token = one.read_token
              AND (cardinality(read_rows) = 0 OR state.xmin = coalesce(new.read_row, one.read_row));
        ELSE
            UPDATE holdfast.state
            SET fencing_token = coalesce(new.token, tokens[1]), ready_at = coalesce(new.ready_at, ready_ats[1], state.ready_at),
                updated_at = coalesce(new.updated_at, updated_ats[1]),
                due_at = coalesce(new.due_at, CASE cardinality(due_ats) WHEN 1 THEN due_ats[1] END),
                ended_at = coalesce(new.ended_at, CASE cardinality(ended_ats) WHEN 1 THEN ended_ats[1] END),
                attempt = coalesce(new.attempt, attempts[1]), version = coalesce(new.version, versions[1]),
                transition_no = coalesce(new.transition_no, transition_nos[1]),
                failures = coalesce(new.failures, failure_counts[1]), crashes = coalesce(new.crashes, crash_counts[1]),
                state = coalesce(new.state, states[1]),
                owner = coalesce(new.owner, CASE cardinality(owners) WHEN 1 THEN owners[1] END),
                log = CASE WHEN coalesce(new.version, versions[1]) > state.version
                           THEN state.log || number ELSE state.log END,
                detail = coalesce(new.detail, CASE cardinality(details) WHEN 1 THEN details[1] END)::json
            FROM unnest(numbers, read_versions, read_tokens, read_rows, states, attempts, versions, transition_nos,
                        failure_counts, crash_counts, tokens, owners, ready_ats, due_ats, updated_ats, ended_ats, details)
                 WITH ORDINALITY
                 AS new(seq, read_version, read_token, read_row, state, attempt, version, transition_no, failures,
                        crashes, token, owner, ready_at, due_at, updated_at, ended_at, detail, row)
            WHERE new.row > created AND state.seq = new.seq
              AND state.version = coalesce(new.read_version, read_versions[1])
              AND state.fencing_token = coalesce(new.read_token, read_tokens[1])
              AND (CASE WHEN cardinality(read_rows) = 0 THEN true
                        ELSE state.xmin = coalesce(new.read_row, read_rows[1]) END);
        END IF;
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found <> changed - created THEN
            RAISE EXCEPTION '% of % jobs had changed since they were read', changed - created - found,
                changed - created USING ERRCODE = 'serialization_failure';
        END IF;
        IF fact_commits < pg_sequence_last_value('holdfast.fact_commit_seq'::regclass) THEN
            RAISE EXCEPTION 'a fact was recorded meanwhile' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF taken > 0 THEN
        DELETE FROM holdfast.ready WHERE ctid = ANY(ARRAY(
            SELECT ready.ctid
            FROM unnest(taken_numbers, taken_lanes, taken_ready_ats) AS old(seq, lane, ready_at)
            JOIN holdfast.ready
              ON ready.lane = ANY(ARRAY[coalesce(old.lane, taken_lanes[1]), -coalesce(old.lane, taken_lanes[1])])
             AND ready.ready_at = coalesce(old.ready_at, taken_ready_ats[1]) AND ready.seq = old.seq
            FOR UPDATE OF ready SKIP LOCKED));
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found <> taken THEN
            RAISE EXCEPTION '% of % jobs are just being claimed', taken - found, taken
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF cardinality(put_numbers) > 0 THEN
        INSERT INTO holdfast.ready (lane, ready_at, seq, until, lock)
        SELECT CASE WHEN way = 2 OR coalesce(new.lock, CASE cardinality(put_locks) WHEN 1 THEN put_locks[1] END)
                         IS NOT NULL
                      OR coalesce(new.ready_at, put_ready_ats[1])
                         < coalesce(late_before, clock_timestamp() - interval '250 milliseconds')
                    THEN -coalesce(new.lane, put_lanes[1]) ELSE coalesce(new.lane, put_lanes[1]) END,
               coalesce(new.ready_at, put_ready_ats[1]), new.seq,
               coalesce(new.until, CASE cardinality(put_untils) WHEN 1 THEN put_untils[1] END),
               coalesce(new.lock, CASE cardinality(put_locks) WHEN 1 THEN put_locks[1] END)
        FROM unnest(put_numbers, put_lanes, put_ready_ats, put_untils, put_locks)
             AS new(seq, lane, ready_at, until, lock);
    END IF;
    IF rest IS NOT NULL THEN
        facts := holdfast.commit_rest_4(number, rest);
    END IF;
    IF cardinality(claim_numbers) > 0 THEN
        IF rest -> 'appending' IS NULL THEN
            INSERT INTO holdfast.claim (op_id, jobs, claimed_at)
            SELECT coalesce(new.op_id, claim_ops[1]), array_agg(new.job ORDER BY new.row), moment
            FROM unnest(claim_ops, claim_numbers) WITH ORDINALITY AS new(op_id, job, row)
            GROUP BY 1
            ON CONFLICT (op_id) DO NOTHING;
            GET DIAGNOSTICS found = ROW_COUNT;
            IF found <> (SELECT count(DISTINCT op) FROM unnest(claim_ops) AS op) THEN
                RAISE EXCEPTION 'a claim was made before' USING ERRCODE = 'serialization_failure';
            END IF;
        ELSE
            INSERT INTO holdfast.claim (op_id, jobs, claimed_at)
            SELECT coalesce(new.op_id, claim_ops[1]), array_agg(new.job ORDER BY new.row), moment
            FROM unnest(claim_ops, claim_numbers) WITH ORDINALITY AS new(op_id, job, row)
            GROUP BY 1
            ON CONFLICT (op_id) DO UPDATE SET jobs = claim.jobs || excluded.jobs;
        END IF;
    END IF;
    IF clock_timestamp() > deadline THEN
        RAISE EXCEPTION 'the locks of the rows were had too late' USING ERRCODE = 'serialization_failure';
    END IF;
    IF steps IS NOT NULL
       AND coalesce((SELECT value FROM holdfast.meta WHERE name = 'clock'), '') <> steps THEN
        RAISE EXCEPTION 'the clock was set' USING ERRCODE = 'serialization_failure';
    END IF;
    IF cardinality(types) > 0 THEN
        INSERT INTO holdfast.segment (commit, place, size, event_type, occurred_at, events, detail)
        SELECT number, new.place, new.size, new.event_type, new.occurred_at, new.text::json,
               CASE new.place WHEN 0 THEN detail::json END
        FROM unnest(types, places, sizes, occurred_ats, texts) AS new(event_type, place, size, occurred_at, text);
    END IF;
    IF cardinality(count_jobs) > 0 THEN
        INSERT INTO holdfast.queue_count (queue, state, jobs)
        SELECT queue, state, jobs FROM unnest(count_queues, count_states, count_jobs) AS new(queue, state, jobs);
    END IF;
    IF alarm_at IS NOT NULL THEN
        INSERT INTO holdfast.alarm (due_at, jobs) VALUES (alarm_at, alarm_numbers);
    END IF;
    IF channel <> '' THEN
        PERFORM pg_notify(channel, payload);
    END IF;
    row_version := pg_current_xact_id()::xid;
    now := clock_timestamp();
END
$$;

-- The commit of one new job that is simply queued, and nothing else: what commit_4 would do, in a third of the time.
-- event is what follows the key of the job in its segment.
CREATE FUNCTION holdfast.new_job_4(
    moment timestamptz, deadline timestamptz, late_before timestamptz, steps text, channel text, payload text,
    job_id text, queue text, kind text, priority integer, region text, executor text, created_at timestamptz,
    correlation_id text, spec text, origin text, ready_at timestamptz, due_at timestamptz, detail text, lane integer,
    event text,
    OUT wrote boolean, OUT facts integer, OUT row_version xid, OUT now timestamptz, OUT last_number bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    number bigint;
BEGIN
    last_number := nextval('holdfast.job_seq');
    number := holdfast.draw_commit_4(false);
    INSERT INTO holdfast.job (seq, job_id, queue, kind, priority, region, executor, created_at, correlation_id, spec,
                              origin)
    VALUES (last_number, job_id, queue, kind, priority, region, executor, created_at, correlation_id, spec::json,
            origin::json);
    INSERT INTO holdfast.state (seq, fencing_token, ready_at, updated_at, due_at, attempt, version, transition_no,
                                failures, crashes, state, log, detail)
    VALUES (last_number, 0, ready_at, created_at, due_at, 1, 1, 1, 0, 0, 'queued', ARRAY[number], detail::json);
    now := clock_timestamp();
    INSERT INTO holdfast.ready (lane, ready_at, seq, until)
    VALUES (CASE WHEN ready_at < coalesce(late_before, now - interval '250 milliseconds') THEN -lane ELSE lane END,
            ready_at, last_number, due_at);
    IF now > deadline THEN
        RAISE EXCEPTION 'the locks of the rows were had too late' USING ERRCODE = 'serialization_failure';
    END IF;
    IF steps IS NOT NULL
       AND coalesce((SELECT meta.value FROM holdfast.meta WHERE meta.name = 'clock'), '') <> steps THEN
        RAISE EXCEPTION 'the clock was set' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO holdfast.segment (commit, place, size, event_type, occurred_at, events)
    VALUES (number, 0, 1, 'job_queued', moment, ('{"n":1,"job":' || last_number || event)::json);
    INSERT INTO holdfast.queue_count (queue, state, jobs) VALUES (queue, 'queued', 1);
    IF due_at IS NOT NULL THEN
        INSERT INTO holdfast.alarm (due_at, jobs) VALUES (due_at, ARRAY[last_number]);
    END IF;
    IF channel <> '' THEN
        PERFORM pg_notify(channel, payload);
    END IF;
    wrote := true;
    facts := 0;
    row_version := pg_current_xact_id()::xid;
    now := clock_timestamp();
END
$$;

-- The parts of a commit that few have. A body is text, since PostgreSQL does not take JSON apart that has a NUL in
-- it. Returns how many facts were new.
CREATE FUNCTION holdfast.commit_rest_4(number bigint, rest json) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found integer;
    facts integer := 0;
BEGIN
    IF rest -> 'new_locks' IS NOT NULL THEN
        INSERT INTO holdfast.resource (key, token, holder)
        SELECT key, token, holder FROM json_to_recordset(rest -> 'new_locks')
            AS new(key text, token bigint, holder text)
        ON CONFLICT (key) DO NOTHING;
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found <> json_array_length(rest -> 'new_locks') THEN
            RAISE EXCEPTION 'a lock had changed since it was read' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF rest -> 'locks' IS NOT NULL THEN
        UPDATE holdfast.resource SET token = new.token, holder = new.holder
        FROM json_to_recordset(rest -> 'locks')
            AS new(key text, token bigint, holder text, read_token bigint, read_holder text)
        WHERE resource.key = new.key AND resource.token = new.read_token
          AND resource.holder IS NOT DISTINCT FROM new.read_holder;
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found <> json_array_length(rest -> 'locks') THEN
            RAISE EXCEPTION 'a lock had changed since it was read' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF rest -> 'not_rare' IS NOT NULL THEN
        DELETE FROM holdfast.rare
        USING json_to_recordset(rest -> 'not_rare') AS old(state text, seq bigint)
        WHERE rare.state = old.state AND rare.seq = old.seq;
    END IF;
    IF rest -> 'rare' IS NOT NULL THEN
        INSERT INTO holdfast.rare (state, seq)
        SELECT state, seq FROM json_to_recordset(rest -> 'rare') AS new(state text, seq bigint);
    END IF;
    IF rest -> 'output' IS NOT NULL THEN
        INSERT INTO holdfast.event (log_id, place, job, event_type, event_class, attempt, fencing_token, sequence,
                                    end_sequence, actor, occurred_at, received_at, body)
        SELECT (number << 20) + at, 1::bigint << 59, job, event_type, 'worker', attempt, fencing_token, sequence,
               end_sequence, actor, occurred_at, received_at, body::json
        FROM json_to_recordset(rest -> 'output')
            AS new(at integer, job bigint, event_type text, attempt integer, fencing_token bigint,
                   sequence bigint, end_sequence bigint, actor text, occurred_at timestamptz,
                   received_at timestamptz, body text);
    END IF;
    IF rest -> 'facts' IS NOT NULL THEN
        INSERT INTO holdfast.fact (log_id, place, event_type, event_class, attempt, fencing_token, op_id, actor,
                                   occurred_at, received_at, given_id, about, body)
        SELECT (number << 20) + at, 1::bigint << 59, event_type, event_class, attempt, fencing_token, op_id, actor,
               occurred_at, received_at, given_id, about, body::json
        FROM json_to_recordset(rest -> 'facts')
            AS new(at integer, event_type text, event_class text, attempt integer, fencing_token bigint,
                   op_id text, actor text, occurred_at timestamptz, received_at timestamptz, given_id text,
                   about text, body text)
        ON CONFLICT (given_id) DO NOTHING;
        GET DIAGNOSTICS facts = ROW_COUNT;
    END IF;
    RETURN facts;
END
$$;

-- The first ready jobs of one part of a lane whose locks nobody holds, up to `wanted`, in the order in which they
-- are claimed; for a claim also those locks are taken for which other claims wait.
--
-- Most often they are among the first rows. Where they are not, many jobs wait for locks that are held, and going
-- on row by row would read all of these. As no two jobs of a lock can be claimed together, the first row of each
-- lock is enough then, unless the rows have too many locks, or the caller wants every row (not `by_lock`).
-- Without sorting, only ready_lock gives rows in the order of their locks, whatever is known of the table.
CREATE FUNCTION holdfast.unlocked_4(
    part integer, start timestamptz, after bigint, moment timestamptz, wanted integer, claiming boolean,
    by_lock boolean)
RETURNS TABLE (tid tid, ready_at timestamptz, seq bigint, lock text)
LANGUAGE plpgsql VOLATILE ROWS 100 SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
    near_rows bigint := CASE WHEN by_lock THEN greatest(1000, 2 * wanted) END;
    locks_max integer := 1000;
    missing integer := wanted;
    found integer;
    free text[];
BEGIN
    FOR round IN 1 .. 2 LOOP
        RETURN QUERY
            SELECT near.tid, near.ready_at, near.seq, near.lock
            FROM (SELECT ready.ctid AS tid, ready.ready_at, ready.seq, ready.until, ready.lock
                  FROM holdfast.ready
                  WHERE ready.lane = part AND (ready.ready_at, ready.seq) > (start, after)
                    AND ready.ready_at <= moment
                  ORDER BY ready.ready_at, ready.seq
                  LIMIT near_rows) AS near
            WHERE (near.until IS NULL OR near.until > moment)
              AND CASE WHEN EXISTS (SELECT FROM holdfast.resource
                                    WHERE resource.key = near.lock AND resource.holder IS NOT NULL) THEN false
                       ELSE NOT claiming OR pg_try_advisory_xact_lock(
                           hashtext('holdfast.resource'), hashtext(near.lock) & 2047) END
            LIMIT missing;
        GET DIAGNOSTICS found = ROW_COUNT;
        missing := missing - found;
        IF missing = 0 OR near_rows IS NULL THEN
            RETURN;
        END IF;
        SELECT ready.ready_at, ready.seq INTO start, after
        FROM holdfast.ready
        WHERE ready.lane = part AND (ready.ready_at, ready.seq) > (start, after) AND ready.ready_at <= moment
        ORDER BY ready.ready_at, ready.seq
        OFFSET near_rows - 1 LIMIT 1;
        IF start IS NULL THEN
            RETURN;
        END IF;
        WITH RECURSIVE each AS (
            SELECT 1 AS n, (SELECT ready.lock COLLATE "C" FROM holdfast.ready
                            WHERE ready.lane = part AND ready.lock IS NOT NULL
                            ORDER BY ready.lock COLLATE "C" LIMIT 1) AS lock
            UNION ALL
            SELECT each.n + 1, (SELECT ready.lock COLLATE "C" FROM holdfast.ready
                                WHERE ready.lane = part AND ready.lock COLLATE "C" > each.lock
                                ORDER BY ready.lock COLLATE "C" LIMIT 1)
            FROM each WHERE each.lock IS NOT NULL AND each.n < locks_max)
        SELECT count(each.lock), array_agg(each.lock) FILTER (WHERE each.lock IS NOT NULL AND NOT EXISTS (
            SELECT FROM holdfast.resource WHERE resource.key = each.lock AND resource.holder IS NOT NULL))
        INTO found, free FROM each;
        EXIT WHEN found < locks_max;
        near_rows := NULL;
    END LOOP;
    RETURN QUERY
        SELECT head.tid, head.ready_at, head.seq, head.lock
        FROM (SELECT first.* FROM unnest(free) AS free(lock)
              CROSS JOIN LATERAL (
                  SELECT ready.ctid AS tid, ready.ready_at, ready.seq, ready.lock
                  FROM holdfast.ready
                  WHERE ready.lane = part AND ready.lock COLLATE "C" <= free.lock
                    AND (ready.lock COLLATE "C", ready.ready_at, ready.seq) > (free.lock, start, after)
                    AND ready.ready_at <= moment AND (ready.until IS NULL OR ready.until > moment)
                  ORDER BY ready.lock COLLATE "C", ready.ready_at, ready.seq
                  LIMIT 1) AS first
              ORDER BY first.ready_at, first.seq
              OFFSET 0) AS head
        WHERE NOT claiming OR pg_try_advisory_xact_lock(
            hashtext('holdfast.resource'), hashtext(head.lock) & 2047)
        LIMIT missing;
END
$$;

-- Takes up to `wanted` ready jobs out of the queue, in the order in which they are claimed, and returns them:
-- queue by queue, priority by priority, oldest first. Lanes are read from their marks on (those that are not
-- named, and all rows of -lane, from the first on). Rows that another transaction has locked are passed over.
--
-- Every row returned has the new marks. A mark moves to the last row that was seen, up to the first that was
-- not taken: whoever has that one may yet give it back. So a mark is only ever beyond rows that are gone. Those
-- that land later, before a mark, are rows of -lane: jobs that come back, jobs with a lock, what is committed in
-- a transaction of a caller's own, and what is written 250 ms or more after the time that its record says.
-- What is written in time must be committed within another 750 ms, since no mark is less than 1 s old: a commit
-- that takes longer (it waits for a standby) is found when the lane is read from the first row again.
CREATE FUNCTION holdfast.claim_4(
    given_now timestamptz, queues text[], kinds text[], wanted_executor text, wanted_region text, wanted integer,
    mark_lanes integer[], mark_ats timestamptz[], mark_seqs bigint[])
RETURNS TABLE (now timestamptz, floor bigint, new_lanes integer[], new_ats timestamptz[], new_seqs bigint[],
               lane integer, seq bigint, job_id text, state text, attempt integer, version integer,
               transition_no integer, failures integer, crashes integer, fencing_token bigint,
               ready_at timestamptz, created_at timestamptz, updated_at timestamptz, ended_at timestamptz,
               spec json, origin json, detail json)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := coalesce(given_now, statement_timestamp());
    horizon timestamptz := moment - interval '1 second';
    fits integer[];
    fits_locking boolean[];
    lanes integer[];
    locking boolean[];
    by_lock boolean;
    again boolean;
    ats timestamptz[];
    seqs bigint[];
    seen tid[];
    seen_lanes integer[];
    seen_ats timestamptz[];
    seen_seqs bigint[];
    got bigint[];
    all_got bigint[] := '{}';
    got_lanes integer[] := '{}';
    blocked integer[];
    missing integer := wanted;
BEGIN
    new_lanes := '{}';
    new_ats := '{}';
    new_seqs := '{}';
    FOR fits, fits_locking IN
        SELECT array_agg(lane.id), array_agg(lane.locking)
        FROM unnest(queues) WITH ORDINALITY AS wanted_queue(queue, place)
        JOIN holdfast.lane ON lane.queue = wanted_queue.queue
        WHERE lane.executor = wanted_executor
          AND (wanted_region = '' OR lane.region = '' OR lane.region = wanted_region)
          AND (kinds IS NULL OR lane.kind = ANY(kinds))
        GROUP BY wanted_queue.place, lane.priority
        ORDER BY wanted_queue.place, lane.priority
    LOOP
        SELECT array_agg(part.lane), array_agg(part.locking), array_agg(coalesce(mark.at, '-infinity')),
               array_agg(coalesce(mark.seq, 0))
        INTO lanes, locking, ats, seqs
        FROM (SELECT id AS lane, false AS locking FROM unnest(fits, fits_locking) AS fit(id, locking)
              WHERE NOT fit.locking
              UNION ALL SELECT -id, locking FROM unnest(fits, fits_locking) AS fit(id, locking)) AS part
        LEFT JOIN unnest(mark_lanes, mark_ats, mark_seqs) AS mark(lane, at, seq) ON mark.lane = part.lane;
        blocked := '{}';
        by_lock := true;
        LOOP
            SELECT array_agg(found.tid), array_agg(found.lane), array_agg(found.ready_at), array_agg(found.seq)
            INTO seen, seen_lanes, seen_ats, seen_seqs
            FROM (
                SELECT head.* FROM unnest(lanes, locking, ats, seqs) AS part(lane, locking, at, seq)
                CROSS JOIN LATERAL (
                    SELECT ready.ctid AS tid, ready.lane, ready.ready_at, ready.seq
                    FROM holdfast.ready
                    WHERE ready.lane = part.lane AND (ready.ready_at, ready.seq) > (part.at, part.seq)
                      AND ready.ready_at <= moment AND (ready.until IS NULL OR ready.until > moment)
                    ORDER BY ready.ready_at, ready.seq
                    LIMIT missing) AS head
                WHERE NOT part.locking
                UNION ALL
                SELECT head.tid, part.lane, head.ready_at, head.seq
                FROM unnest(lanes, locking, ats, seqs) AS part(lane, locking, at, seq)
                CROSS JOIN LATERAL holdfast.unlocked_4(
                    part.lane, part.at, part.seq, moment, missing, true, by_lock) AS head
                WHERE part.locking
                ORDER BY ready_at, seq
                LIMIT missing) AS found;
            EXIT WHEN seen IS NULL;
            WITH gone AS (
                DELETE FROM holdfast.ready
                WHERE ctid = ANY(ARRAY(
                    SELECT ready.ctid FROM holdfast.ready
                    JOIN holdfast.state ON state.seq = ready.seq
                    WHERE ready.ctid = ANY(seen)
                    FOR UPDATE OF ready SKIP LOCKED FOR NO KEY UPDATE OF state SKIP LOCKED))
                RETURNING ready.seq)
            SELECT coalesce(array_agg(gone.seq), '{}') INTO got FROM gone;
            IF cardinality(got) = cardinality(seen) THEN
                all_got := all_got || seen_seqs;
                got_lanes := got_lanes || seen_lanes;
                again := false;
            ELSE
                -- IS TRUE makes this a lookup in a hash table; a join would compare every row with every other.
                SELECT all_got || coalesce(array_agg(taken.seq), '{}'), got_lanes || coalesce(array_agg(taken.lane), '{}')
                INTO all_got, got_lanes
                FROM unnest(seen_seqs, seen_lanes) AS taken(seq, lane) WHERE (taken.seq IN (SELECT unnest(got))) IS TRUE;
                -- The mark of each lane is before the first of its rows that was passed over.
                SELECT blocked || coalesce(array_agg(passed.lane), '{}'), new_lanes || coalesce(array_agg(passed.lane), '{}'),
                       new_ats || coalesce(array_agg(least(passed.at, horizon)), '{}'),
                       new_seqs || coalesce(array_agg(CASE WHEN passed.at <= horizon THEN passed.seq - 1 ELSE 0 END), '{}')
                INTO blocked, new_lanes, new_ats, new_seqs
                FROM (
                    SELECT DISTINCT ON (row.lane) row.lane, row.at, row.seq
                    FROM unnest(seen_lanes, seen_ats, seen_seqs) AS row(lane, at, seq)
                    WHERE row.lane > 0 AND NOT (row.lane = ANY(blocked)) AND row.seq NOT IN (SELECT unnest(got))
                    ORDER BY row.lane, row.at, row.seq) AS passed;
                -- Behind the first job of a lock may be others, which are to be had if that one is not.
                again := by_lock AND true = ANY(locking) AND EXISTS (
                    SELECT FROM unnest(seen_lanes, seen_seqs) AS row(lane, seq)
                    JOIN unnest(lanes, locking) AS part(lane, locking) ON part.lane = row.lane
                    WHERE part.locking AND row.seq NOT IN (SELECT unnest(got)));
            END IF;
            -- The next place in each lane is behind the last of its rows, which are in order.
            SELECT array_agg(coalesce(seen_ats[last.n], part.at)), array_agg(coalesce(seen_seqs[last.n], part.seq))
            INTO ats, seqs
            FROM unnest(lanes, locking, ats, seqs) AS part(lane, locking, at, seq)
            LEFT JOIN (
                SELECT row.lane, max(row.n) AS n FROM unnest(seen_lanes) WITH ORDINALITY AS row(lane, n)
                GROUP BY row.lane) AS last ON last.lane = part.lane AND NOT (again AND part.locking);
            missing := missing - cardinality(got);
            EXIT WHEN missing = 0 OR NOT again AND cardinality(seen) < missing + cardinality(got);
            by_lock := by_lock AND NOT again;
        END LOOP;
        FOR n IN 1 .. cardinality(lanes) LOOP
            IF lanes[n] > 0 AND NOT (lanes[n] = ANY(blocked)) THEN
                -- Where too few were found, there are none up to now.
                IF missing > 0 THEN
                    ats[n] := moment;
                END IF;
                new_lanes := new_lanes || lanes[n];
                new_ats := new_ats || least(ats[n], horizon);
                new_seqs := new_seqs || CASE WHEN ats[n] <= horizon THEN seqs[n] ELSE 0 END;
            END IF;
        END LOOP;
        EXIT WHEN missing = 0;
    END LOOP;
    now := clock_timestamp();
    floor := (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor');
    RETURN QUERY
        SELECT now, floor, CASE WHEN taken.row = 1 THEN new_lanes END, CASE WHEN taken.row = 1 THEN new_ats END,
               CASE WHEN taken.row = 1 THEN new_seqs END, abs(taken.lane),
               record.seq, record.job_id, record.state, record.attempt, record.version, record.transition_no,
               record.failures, record.crashes, record.fencing_token, record.ready_at, record.created_at,
               record.updated_at, record.ended_at, record.spec, record.origin, record.detail
        FROM unnest(all_got, got_lanes) WITH ORDINALITY AS taken(seq, lane, row)
        JOIN holdfast.record ON record.seq = taken.seq
        ORDER BY taken.row;
    IF NOT FOUND THEN
        lane := NULL;
        RETURN NEXT;
    END IF;
END
$$;

-- Takes the alarms that have gone off, and returns the jobs that are due, the longest overdue first. Every other
-- job of these alarms gets a new one, at the time when it is due; one that another transaction has locked is
-- looked at again after a second.
CREATE FUNCTION holdfast.due_4(given_now timestamptz, wanted integer, start timestamptz)
RETURNS TABLE (now timestamptz, floor bigint, first timestamptz, alarms integer, seq bigint, job_id text, state text,
               attempt integer, version integer, transition_no integer, failures integer, crashes integer,
               fencing_token bigint, ready_at timestamptz, created_at timestamptz, updated_at timestamptz,
               ended_at timestamptz, spec json, origin json, detail json)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := coalesce(given_now, statement_timestamp());
    beyond timestamptz;
    jobs bigint[];
    due bigint[];
    got bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.alarm WHERE ctid = ANY(ARRAY(
            SELECT alarm.ctid FROM holdfast.alarm
            WHERE alarm.ctid = ANY(ARRAY(
                SELECT next.tid FROM (
                    SELECT head.tid, sum(head.size) OVER (ORDER BY head.due_at, head.id) - head.size AS before
                    FROM (SELECT alarm.ctid AS tid, alarm.id, alarm.due_at, cardinality(alarm.jobs) AS size
                          FROM holdfast.alarm
                          WHERE alarm.due_at <= moment AND alarm.due_at >= start
                          ORDER BY alarm.due_at, alarm.id LIMIT 1000) AS head) AS next
                WHERE next.before < 2000))
            FOR UPDATE SKIP LOCKED))
        RETURNING alarm.due_at, alarm.jobs)
    SELECT count(*), min(gone.due_at),
           (SELECT array_agg(DISTINCT job) FROM gone AS one CROSS JOIN unnest(one.jobs) AS job)
    INTO alarms, first, jobs FROM gone;
    now := clock_timestamp();
    IF alarms > 0 THEN
        -- Jobs that are due later than an alarm that is still to be looked at have to wait for that.
        SELECT min(alarm.due_at) INTO beyond FROM holdfast.alarm WHERE alarm.due_at <= moment AND alarm.due_at >= start;
        due := ARRAY(
            SELECT state.seq FROM unnest(jobs) AS job JOIN holdfast.state ON state.seq = job
            WHERE state.due_at <= moment AND (beyond IS NULL OR state.due_at <= beyond)
            ORDER BY state.due_at, state.seq LIMIT wanted);
        got := ARRAY(
            SELECT state.seq FROM holdfast.state WHERE state.seq = ANY(due) ORDER BY state.seq
            FOR NO KEY UPDATE SKIP LOCKED);
        INSERT INTO holdfast.alarm (due_at, jobs)
        SELECT min(CASE WHEN state.seq = ANY(due) THEN moment + interval '1 second' ELSE state.due_at END),
               array_agg(state.seq)
        FROM unnest(jobs) AS job JOIN holdfast.state ON state.seq = job
        WHERE state.due_at IS NOT NULL AND NOT (state.seq = ANY(got))
        GROUP BY state.seq = ANY(due), state.due_at <= moment
        HAVING count(*) > 0;
        floor := (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor');
        RETURN QUERY
            SELECT now, floor, first, alarms,
                   record.seq, record.job_id, record.state, record.attempt, record.version, record.transition_no,
                   record.failures, record.crashes, record.fencing_token, record.ready_at, record.created_at,
                   record.updated_at, record.ended_at, record.spec, record.origin, record.detail
            FROM unnest(got) AS taken(seq) JOIN holdfast.record ON record.seq = taken.seq
            ORDER BY record.due_at, record.seq;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    floor := (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor');
    RETURN NEXT;
END
$$;

-- Locks jobs and returns them. Whoever waits for locks takes those of ready rows before those of states, as claims
-- do. What is returned is read once they are held: a shared detail may have been committed meanwhile.
CREATE FUNCTION holdfast.lock_jobs_4(ids text[])
RETURNS TABLE (now timestamptz, floor bigint, seq bigint, job_id text, state text, attempt integer,
               version integer, transition_no integer, failures integer, crashes integer, fencing_token bigint,
               ready_at timestamptz, created_at timestamptz, updated_at timestamptz, ended_at timestamptz,
               spec json, origin json, detail json)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    numbers bigint[] := ARRAY(SELECT job.seq FROM holdfast.job WHERE job.job_id = ANY(ids) ORDER BY job.seq);
    queued bigint[] := ARRAY(
        SELECT state.seq FROM holdfast.state WHERE state.seq = ANY(numbers) AND state.state = 'queued');
BEGIN
    IF cardinality(queued) > 0 THEN
        -- OFFSET keeps the planner from reading whole lanes, which it takes for small while it has no statistics.
        PERFORM FROM (
            SELECT state.seq, state.ready_at, lane.id AS lane
            FROM unnest(queued) AS wanted(seq)
            JOIN holdfast.state ON state.seq = wanted.seq JOIN holdfast.job ON job.seq = wanted.seq
            JOIN holdfast.lane ON lane.queue = job.queue AND lane.priority = job.priority AND lane.kind = job.kind
             AND lane.executor = coalesce(job.executor, '') AND lane.region = coalesce(job.region, '')
             AND lane.locking = (job.lock IS NOT NULL)
            OFFSET 0) AS place
        JOIN holdfast.ready ON ready.lane = ANY(ARRAY[place.lane, -place.lane]) AND ready.ready_at = place.ready_at
         AND ready.seq = place.seq
        ORDER BY place.seq FOR UPDATE OF ready;
    END IF;
    PERFORM FROM holdfast.state WHERE state.seq = ANY(numbers) ORDER BY state.seq FOR NO KEY UPDATE;
    now := clock_timestamp();
    floor := (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor');
    RETURN QUERY
        SELECT now, floor,
               record.seq, record.job_id, record.state, record.attempt, record.version, record.transition_no,
               record.failures, record.crashes, record.fencing_token, record.ready_at, record.created_at,
               record.updated_at, record.ended_at, record.spec, record.origin, record.detail
        FROM holdfast.record WHERE record.seq = ANY(numbers);
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END
$$;

-- For SQL by hand: one row for each event, also for those that were written together. These have one time, the
-- time of their commit or, for the events of a worker, that of the first; attributes has all of a worker's event.
CREATE FUNCTION holdfast.one_of(field json, item json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE json_typeof(field) WHEN 'array' THEN item #>> '{}' ELSE field #>> '{}' END
$$;

-- The events of a segment. STRICT keeps the planner from taking this apart: it would expect far more rows.
CREATE FUNCTION holdfast.unfold(events json)
RETURNS TABLE (place integer, job bigint, event_offset text, attempt text, trace_id text, attributes json)
LANGUAGE sql IMMUTABLE STRICT ROWS 10 AS $$
    SELECT CASE json_typeof(field.at) WHEN 'array' THEN (item.at #>> '{}')::integer
               ELSE coalesce((field.at #>> '{}')::integer, 0) + item.row::integer END,
           holdfast.one_of(field.job, item.job)::bigint, holdfast.one_of(field."offset", item."offset"),
           holdfast.one_of(field.attempt, item.attempt), holdfast.one_of(field.trace_id, item.trace_id),
           CASE json_typeof(field.attributes) WHEN 'array' THEN item.attributes ELSE field.attributes END
    FROM json_to_record(holdfast.shown(events)) AS field(
        n integer, at json, job json, "offset" json, attempt json, trace_id json, attributes json)
    CROSS JOIN LATERAL ROWS FROM (
        generate_series(0, field.n - 1),
        json_array_elements(CASE json_typeof(field.job) WHEN 'array' THEN field.job END),
        json_array_elements(CASE json_typeof(field.at) WHEN 'array' THEN field.at END),
        json_array_elements(CASE json_typeof(field."offset") WHEN 'array' THEN field."offset" END),
        json_array_elements(CASE json_typeof(field.attempt) WHEN 'array' THEN field.attempt END),
        json_array_elements(CASE json_typeof(field.trace_id) WHEN 'array' THEN field.trace_id END),
        json_array_elements(CASE json_typeof(field.attributes) WHEN 'array' THEN field.attributes END)
    ) AS item(row, job, at, "offset", attempt, trace_id, attributes)
$$;

CREATE VIEW holdfast.job_event_log AS
SELECT
    (segment.commit << 20) + item.place AS log_id,
    job.job_id || '/' || item.event_offset AS event_id,
    segment.event_type,
    segment.occurred_at,
    job.job_id,
    NULL AS task_id,
    job.job_id || '#' || item.attempt AS execution_id,
    coalesce(item.trace_id, holdfast.shown(job.origin) ->> 'trace_id') AS trace_id,
    NULL AS span_id,
    item.attributes,
    segment.occurred_at AS received_at
FROM holdfast.job
JOIN holdfast.state ON state.seq = job.seq
JOIN holdfast.segment ON segment.commit = ANY(state.log)
CROSS JOIN LATERAL holdfast.unfold(segment.events) AS item
WHERE item.job = job.seq
UNION ALL
SELECT
    event.log_id,
    job.job_id || '/' || coalesce(
        event.event_offset::text, event.attempt || '.' || event.fencing_token || '.' || (item.one ->> 'sequence')),
    event.event_type,
    event.occurred_at,
    job.job_id,
    coalesce(item.one ->> 'task_id', shown.body ->> 'task_id'),
    coalesce(item.one ->> 'execution_id', shown.body ->> 'execution_id', job.job_id || '#' || event.attempt),
    coalesce(item.one ->> 'trace_id', shown.body ->> 'trace_id', holdfast.shown(job.origin) ->> 'trace_id'),
    coalesce(item.one ->> 'span_id', shown.body ->> 'span_id'),
    coalesce(item.one, shown.body -> 'attributes'),
    coalesce(event.received_at, event.occurred_at)
FROM holdfast.event JOIN holdfast.job ON job.seq = event.job
CROSS JOIN LATERAL (
    SELECT CASE WHEN event.sequence IS NULL THEN holdfast.shown(event.body) END AS body,
           CASE WHEN event.sequence IS NULL THEN '[null]'::json ELSE holdfast.shown(event.body) END AS items) AS shown
CROSS JOIN LATERAL (
    SELECT CASE json_typeof(value) WHEN 'object' THEN value END AS one
    FROM json_array_elements(shown.items) AS value) AS item
UNION ALL
SELECT
    log_id, given_id, event_type, occurred_at, about, shown.body ->> 'task_id',
    shown.body ->> 'execution_id', shown.body ->> 'trace_id', shown.body ->> 'span_id',
    shown.body -> 'attributes', coalesce(received_at, occurred_at)
FROM holdfast.fact CROSS JOIN LATERAL (SELECT holdfast.shown(fact.body) AS body) AS shown;
