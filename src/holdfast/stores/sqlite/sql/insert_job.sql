INSERT INTO job (seq, job_id, queue, kind, priority, region, executor, lock, created_at, spec,
                 state, attempt, version, transition_no, failures, crashes, fencing_token, owner,
                 lease_expires_at, ready_at, due_at, updated_at, ended_at, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?)
