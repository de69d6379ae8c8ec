UPDATE job
SET lease_expires_at = lease_expires_at + :shift, due_at = due_at + :shift,
    detail = json_set(detail, '$.lease.expires_at',
        strftime('%Y-%m-%dT%H:%M:%fZ', (lease_expires_at + :shift) / 1e6, 'unixepoch'))
WHERE lease_expires_at IS NOT NULL
