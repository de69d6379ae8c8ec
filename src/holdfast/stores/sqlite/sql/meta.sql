-- Facts about the store, API keys, workers, and the clock.

-- name: select_meta
SELECT value FROM meta WHERE name = ?

-- name: put_meta
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: select_resource
SELECT token, holder FROM resource WHERE key = ?

-- name: raise_tokens
UPDATE resource SET token = token + ?, holder = NULL

-- name: put_api_key
INSERT INTO api_key (key_id, created_at, record) VALUES (?, ?, ?)
ON CONFLICT (key_id) DO UPDATE SET created_at = excluded.created_at, record = excluded.record

-- name: select_api_keys
SELECT record FROM api_key ORDER BY created_at, key_id

-- name: put_worker
INSERT INTO worker (name, instance, seen_at, record) VALUES (?, ?, ?, ?)
ON CONFLICT (name, instance) DO UPDATE SET seen_at = excluded.seen_at, record = excluded.record

-- name: forget_workers
DELETE FROM worker WHERE seen_at < ?

-- name: select_workers
SELECT record FROM worker ORDER BY seen_at DESC, name, instance

-- name: select_latest_update
SELECT max(updated_at) FROM state WHERE due_at IS NOT NULL OR state = 'queued'

-- name: select_leased_jobs
SELECT DISTINCT state.seq
FROM alarm CROSS JOIN json_each(alarm.jobs) AS item CROSS JOIN state ON state.seq = item.value
WHERE state.state IN ('assigned', 'running', 'aggregating')

-- name: select_time_bound_jobs
SELECT seq FROM state WHERE due_at IS NOT NULL OR (state = 'queued' AND (ready_at > ?1 OR updated_at > ?1))

-- name: move_alarms
UPDATE alarm SET due_at = due_at + ?
