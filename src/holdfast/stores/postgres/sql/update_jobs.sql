UPDATE holdfast.job
SET state = new.state, attempt = new.attempt, version = new.version, transition_no = new.transition_no,
    failures = new.failures, crashes = new.crashes, fencing_token = new.fencing_token,
    owner = new.owner, lease_expires_at = new.lease_expires_at, ready_at = new.ready_at,
    due_at = new.due_at, updated_at = new.updated_at, ended_at = new.ended_at, detail = new.detail
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::xid[],
            $5::text[], $6::integer[], $7::bigint[], $8::bigint[], $9::integer[], $10::integer[],
            $11::bigint[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[],
            $16::timestamptz[], $17::timestamptz[], $18::json[])
         AS new(seq, read_version, read_token, read_row,
                state, attempt, version, transition_no, failures, crashes,
                fencing_token, owner, lease_expires_at, ready_at, due_at,
                updated_at, ended_at, detail)
WHERE job.seq = new.seq AND job.version = new.read_version AND job.fencing_token = new.read_token
  AND (new.read_row IS NULL OR job.xmin = new.read_row)
RETURNING 1
