UPDATE job
SET state = ?, attempt = ?, version = ?, transition_no = ?, failures = ?, crashes = ?,
    fencing_token = ?, owner = ?, lease_expires_at = ?, ready_at = ?, due_at = ?, updated_at = ?,
    ended_at = ?, detail = ?
WHERE seq = ? AND version = ?
