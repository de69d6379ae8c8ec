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
                SELECT all_got || coalesce(array_agg(taken.seq), '{}'),
                       got_lanes || coalesce(array_agg(taken.lane), '{}')
                INTO all_got, got_lanes
                FROM unnest(seen_seqs, seen_lanes) AS taken(seq, lane)
                WHERE (taken.seq IN (SELECT unnest(got))) IS TRUE;
                -- The mark of each lane is before the first of its rows that was passed over.
                SELECT blocked || coalesce(array_agg(passed.lane), '{}'),
                       new_lanes || coalesce(array_agg(passed.lane), '{}'),
                       new_ats || coalesce(array_agg(least(passed.at, horizon)), '{}'),
                       new_seqs || coalesce(array_agg(
                           CASE WHEN passed.at <= horizon THEN passed.seq - 1 ELSE 0 END), '{}')
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
