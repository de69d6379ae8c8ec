UPDATE job
SET lease_expires_at = ?, due_at = ?, updated_at = ?, detail = ?
WHERE seq = ? AND version = ? AND fencing_token = ?
