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
