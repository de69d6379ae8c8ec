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
        SELECT min(alarm.due_at) INTO beyond FROM holdfast.alarm
        WHERE alarm.due_at <= moment AND alarm.due_at >= start;
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
