-- One commit. Of every column there is an array, with one value for each row, or with a single one for all.
-- The first rows of the record's columns are those of new jobs, the others of jobs that are changed if they are
-- as they were read. Without ready_ats, the changed ones keep theirs. New jobs without numbers get theirs here,
-- and so do their ready rows and their events: then texts has what follows the keys of the jobs.
--
-- way: 0 waits for locks; 1 writes nothing, and waits for nothing, when one of its rows is locked or was changed;
-- 2 is part of a transaction of the caller's own; 3 has locked the rows of all its jobs before. A ready row that
-- is to be deleted is never waited for: a claim may hold it that waits for a job of ours.
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
        CROSS JOIN unnest(numbers[:created], job_ids, queues, kinds, priorities, regions, executors, locks,
                          created_ats, correlation_ids, specs, origins)
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
            SET fencing_token = coalesce(new.token, tokens[1]),
                ready_at = coalesce(new.ready_at, ready_ats[1], state.ready_at),
                updated_at = coalesce(new.updated_at, updated_ats[1]),
                due_at = coalesce(new.due_at, CASE cardinality(due_ats) WHEN 1 THEN due_ats[1] END),
                ended_at = coalesce(new.ended_at, CASE cardinality(ended_ats) WHEN 1 THEN ended_ats[1] END),
                attempt = coalesce(new.attempt, attempts[1]), version = coalesce(new.version, versions[1]),
                transition_no = coalesce(new.transition_no, transition_nos[1]),
                failures = coalesce(new.failures, failure_counts[1]),
                crashes = coalesce(new.crashes, crash_counts[1]),
                state = coalesce(new.state, states[1]),
                owner = coalesce(new.owner, CASE cardinality(owners) WHEN 1 THEN owners[1] END),
                log = CASE WHEN coalesce(new.version, versions[1]) > state.version
                           THEN state.log || number ELSE state.log END,
                detail = coalesce(new.detail, CASE cardinality(details) WHEN 1 THEN details[1] END)::json
            FROM unnest(numbers, read_versions, read_tokens, read_rows, states, attempts, versions, transition_nos,
                        failure_counts, crash_counts, tokens, owners, ready_ats, due_ats, updated_ats, ended_ats,
                        details)
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
