-- Statements that choose jobs.

-- name: take_ready
SELECT now, floor, new_lanes, new_ats, new_seqs, lane,
       seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM holdfast.claim_4($1::timestamptz, $2::text[], $3::text[], $4::text, $5::text, $6::integer,
                      $7::integer[], $8::timestamptz[], $9::bigint[])

-- name: peek_ready
WITH fits AS MATERIALIZED (
    SELECT lane.id, wanted.place, lane.priority, lane.locking
    FROM unnest($2::text[]) WITH ORDINALITY AS wanted(queue, place)
    JOIN holdfast.lane ON lane.queue = wanted.queue
    WHERE lane.executor = $4::text AND ($5::text = '' OR lane.region = '' OR lane.region = $5::text)
      AND ($3::text[] IS NULL OR lane.kind = ANY($3::text[]))),
part AS MATERIALIZED (
    SELECT fits.id AS lane, fits.place, fits.priority, coalesce(mark.at, '-infinity') AS at,
           coalesce(mark.seq, 0) AS after
    FROM fits LEFT JOIN unnest($6::integer[], $7::timestamptz[], $8::bigint[]) AS mark(lane, at, seq)
      ON mark.lane = fits.id
    WHERE NOT fits.locking
    UNION ALL SELECT -fits.id, fits.place, fits.priority, '-infinity', 0 FROM fits WHERE NOT fits.locking),
found AS MATERIALIZED (
    SELECT NULL AS lock, head.seq, abs(part.lane) AS lane, part.place, part.priority, head.ready_at
    FROM part CROSS JOIN LATERAL (
        SELECT ready.seq, ready.ready_at FROM holdfast.ready
        WHERE ready.lane = part.lane AND (ready.ready_at, ready.seq) > (part.at, part.after)
          AND ready.ready_at <= coalesce($1::timestamptz, statement_timestamp())
          AND (ready.until IS NULL OR ready.until > coalesce($1::timestamptz, statement_timestamp()))
        ORDER BY ready.ready_at, ready.seq
        LIMIT $11) AS head
    UNION ALL
    SELECT head.lock, head.seq, fits.id, fits.place, fits.priority, head.ready_at
    FROM fits CROSS JOIN LATERAL holdfast.unlocked_4(
        -fits.id, '-infinity'::timestamptz, 0::bigint, coalesce($1::timestamptz, statement_timestamp()),
        $11::integer, false, true) AS head
    WHERE fits.locking
    ORDER BY place, priority, ready_at, seq
    LIMIT $11)
SELECT clock_timestamp(),
       EXISTS (
           SELECT FROM holdfast.alarm
           WHERE due_at BETWEEN $9::timestamptz AND coalesce($1::timestamptz, statement_timestamp())) AS is_due,
       EXISTS (SELECT FROM holdfast.claim WHERE op_id = ANY($10::text[])) AS is_claimed,
       chosen.*
FROM (SELECT) AS always LEFT JOIN (
    SELECT found.lock, found.lane,
           job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no, state.failures,
           state.crashes, state.fencing_token, state.ready_at, job.created_at, state.updated_at, state.ended_at,
           job.spec::text, job.origin::text, coalesce(state.detail, segment.detail)::text, state.xmin
    FROM found JOIN holdfast.job ON job.seq = found.seq JOIN holdfast.state ON state.seq = found.seq
    LEFT JOIN holdfast.segment
      ON segment.commit = CASE WHEN state.detail IS NULL THEN state.log[cardinality(state.log)] END
     AND segment.place = 0
    ORDER BY found.place, found.priority, found.ready_at, found.seq) AS chosen ON true

-- name: take_due
SELECT now, floor, first, alarms,
       seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM holdfast.due_4($1::timestamptz, $2::integer, $3::timestamptz)

-- name: select_claimed
SELECT claim.op_id, job.job_id
FROM holdfast.claim
CROSS JOIN LATERAL unnest(claim.jobs) WITH ORDINALITY AS claimed(seq, place)
JOIN holdfast.job ON job.seq = claimed.seq
WHERE claim.op_id = ANY($1::text[])
ORDER BY claim.op_id, claimed.place
