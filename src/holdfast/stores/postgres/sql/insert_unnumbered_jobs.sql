INSERT INTO holdfast.job (seq, job_id, queue, kind, priority, region, executor, lock, created_at,
                          correlation_id, spec, state, attempt, version, transition_no, failures,
                          crashes, fencing_token, owner, lease_expires_at, ready_at, due_at,
                          updated_at, ended_at, detail)
SELECT nextval('holdfast.job_seq'), job_id, queue, kind, priority, region, executor, lock, created_at,
       correlation_id, spec::json, state, attempt, version, transition_no, failures,
       crashes, fencing_token, owner, lease_expires_at, ready_at, due_at,
       updated_at, ended_at, detail::json
FROM unnest($1::holdfast.new_job[])
RETURNING seq
