INSERT INTO holdfast.fact (log_id, place, event_type, event_class, attempt, fencing_token, op_id, actor,
                           occurred_at, received_at, given_id, about, body)
SELECT nextval('holdfast.log_seq'),
       $1::bigint + (SELECT greatest(pg_current_xact_id()::text::bigint,
                                     pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)),
       new.*
FROM agreed, (SELECT count(*) FROM (
        SELECT FROM holdfast.job WHERE job_id = ANY($11::text[]) ORDER BY seq FOR NO KEY UPDATE
     ) AS subjects) AS held,
     (SELECT count(pg_advisory_xact_lock(hashtextextended('holdfast.' || about, 0))) FROM (
        SELECT DISTINCT about FROM unnest($11::text[]) AS about
        WHERE NOT EXISTS (SELECT FROM holdfast.job WHERE job_id = about) ORDER BY about
     ) AS strangers) AS met,
     unnest($2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[], $7::text[],
            $8::timestamptz[], $9::timestamptz[], $10::text[], $11::text[], $12::text[]::json[]) AS new
ON CONFLICT (given_id) DO NOTHING
RETURNING 1
