INSERT INTO holdfast.job (seq, job_id, queue, kind, priority, region, executor, lock, created_at,
                          correlation_id, spec,
                          state, attempt, version, transition_no, failures, crashes, fencing_token,
                          owner, lease_expires_at, ready_at, due_at, updated_at, ended_at, detail)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[],
                     $7::text[], $8::text[], $9::timestamptz[], $10::text[], $11::text[]::json[],
                     $12::text[], $13::integer[], $14::bigint[], $15::bigint[], $16::integer[],
                     $17::integer[], $18::bigint[], $19::text[], $20::timestamptz[],
                     $21::timestamptz[], $22::timestamptz[], $23::timestamptz[],
                     $24::timestamptz[], $25::text[]::json[])
RETURNING 1
