UPDATE holdfast.job
SET state = new.state, attempt = new.attempt, version = new.version, transition_no = new.transition_no,
    failures = new.failures, crashes = new.crashes, fencing_token = new.fencing_token,
    owner = new.owner, lease_expires_at = new.lease_expires_at, ready_at = new.ready_at,
    due_at = new.due_at, updated_at = new.updated_at, ended_at = new.ended_at,
    detail = new.detail::json
FROM unnest($1::holdfast.changed_job[]) AS new
WHERE job.seq = new.seq AND job.version = new.read_version AND job.fencing_token = new.read_token
  AND (new.read_row IS NULL OR job.xmin = new.read_row)
RETURNING 1
