INSERT INTO holdfast.fact (log_id, place, event_type, event_class, attempt, fencing_token, op_id, actor,
                           occurred_at, received_at, given_id, about, body)
SELECT nextval('holdfast.log_seq'),
       (SELECT holdfast.base() + greatest(pg_current_xact_id()::text::bigint,
                                      pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)),
       event_type, event_class, attempt, fencing_token, op_id, actor,
       occurred_at, received_at, given_id, about, body::json
FROM agreed,
     (SELECT count(*) FROM (
        SELECT FROM holdfast.job
        WHERE job_id = ANY(ARRAY(SELECT about FROM unnest($1::holdfast.new_fact[])))
        ORDER BY seq FOR NO KEY UPDATE
     ) AS subjects) AS held,
     (SELECT count(pg_advisory_xact_lock(hashtext('holdfast.fact'), bucket)) FROM (
        SELECT DISTINCT hashtext(about) & 1023 AS bucket
        FROM unnest($1::holdfast.new_fact[]) ORDER BY bucket
     ) AS buckets) AS met,
     unnest($1::holdfast.new_fact[])
ON CONFLICT (given_id) DO NOTHING
RETURNING 1
