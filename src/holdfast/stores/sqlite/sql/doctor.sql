-- What the doctor reads.

-- name: select_foreign_table
SELECT 1 FROM sqlite_schema WHERE name <> 'job' LIMIT 1

-- name: select_log_view
SELECT 1 FROM sqlite_schema WHERE name = 'job_event_log'

-- name: select_overdue
SELECT min(state.due_at)
FROM alarm CROSS JOIN json_each(alarm.jobs) AS item CROSS JOIN state ON state.seq = item.value
WHERE alarm.due_at < ?1
