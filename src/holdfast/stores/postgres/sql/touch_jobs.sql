UPDATE holdfast.job
SET lease_expires_at = new.lease_expires_at, due_at = new.due_at, updated_at = new.updated_at,
    detail = new.detail
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::xid[],
            $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::json[])
         AS new(seq, read_version, read_token, read_row,
                lease_expires_at, due_at, updated_at, detail)
WHERE job.seq = new.seq AND job.version = new.read_version AND job.fencing_token = new.read_token
  AND (new.read_row IS NULL OR job.xmin = new.read_row)
RETURNING 1
