-- Statements about steps of the clock of the server.

-- name: select_clock
SELECT clock_timestamp(), coalesce((SELECT value FROM holdfast.meta WHERE name = 'clock'), '')

-- name: put_clock
INSERT INTO holdfast.meta (name, value) VALUES ('clock', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: select_newest_time
WITH last_step AS MATERIALIZED (
    SELECT CASE WHEN age(xmin) >= 0 THEN age(xmin) END AS age, (value::json ->> 'at')::timestamptz AS told
    FROM holdfast.meta WHERE name = 'clock')
SELECT greatest(
           (SELECT told FROM last_step),
           (SELECT max(occurred_at)
            FROM (SELECT xmin, occurred_at FROM holdfast.segment
                  ORDER BY commit DESC, place DESC LIMIT 20) AS newest
            WHERE age(xmin) < coalesce((SELECT age FROM last_step), 2147483647)),
           (SELECT max(coalesce(received_at, occurred_at))
            FROM (SELECT xmin, received_at, occurred_at FROM holdfast.event
                  ORDER BY place DESC, log_id DESC LIMIT 20) AS newest
            WHERE age(xmin) < coalesce((SELECT age FROM last_step), 2147483647)),
           (SELECT max((holdfast.shown(coalesce(latest.detail, segment.detail))
                        -> 'lease' ->> 'heartbeat_at')::timestamptz)
            FROM (SELECT state.xmin, state.owner, state.detail, state.log
                  FROM (SELECT jobs FROM holdfast.alarm ORDER BY due_at DESC, id DESC LIMIT 20) AS last
                  CROSS JOIN unnest(last.jobs) AS job JOIN holdfast.state ON state.seq = job
                  WHERE state.due_at IS NOT NULL LIMIT 1000) AS latest
            LEFT JOIN holdfast.segment
              ON segment.commit = CASE WHEN latest.detail IS NULL THEN latest.log[cardinality(latest.log)] END
             AND segment.place = 0
            WHERE latest.owner IS NOT NULL
              AND age(latest.xmin) <= coalesce((SELECT age FROM last_step), 2147483647))) AS told,
       clock_timestamp() AS now,
       NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
           AND has_table_privilege('holdfast.state', 'UPDATE')
           AND has_table_privilege('holdfast.meta', 'INSERT')
           AND has_table_privilege('holdfast.meta', 'UPDATE') AS may_write

-- name: select_written_between
WITH last_step AS MATERIALIZED (
    SELECT CASE WHEN age(xmin) >= 0 THEN age(xmin) END AS age FROM holdfast.meta WHERE name = 'clock')
SELECT EXISTS (
           SELECT FROM (SELECT xmin, updated_at FROM holdfast.state ORDER BY seq DESC LIMIT 100) AS newest
           WHERE updated_at > $1::timestamptz AND updated_at < $2::timestamptz
             AND age(xmin) < coalesce((SELECT age FROM last_step), 2147483647))
    OR EXISTS (
           SELECT FROM (
               SELECT (holdfast.shown(coalesce(state.detail, segment.detail))
                       -> 'lease' ->> 'heartbeat_at')::timestamptz AS heartbeat_at
               FROM holdfast.alarm CROSS JOIN unnest(alarm.jobs) AS job JOIN holdfast.state ON state.seq = job
               LEFT JOIN holdfast.segment
                 ON segment.commit = CASE WHEN state.detail IS NULL THEN state.log[cardinality(state.log)] END
                AND segment.place = 0
               WHERE state.due_at IS NOT NULL AND state.owner IS NOT NULL
                 AND age(state.xmin) < coalesce((SELECT age FROM last_step), 2147483647)) AS leased
           WHERE heartbeat_at > $1::timestamptz AND heartbeat_at < $2::timestamptz)

-- name: select_time_bound_jobs
SELECT state.seq FROM holdfast.alarm CROSS JOIN unnest(alarm.jobs) AS job
JOIN holdfast.state ON state.seq = job
WHERE state.due_at IS NOT NULL
UNION
SELECT state.seq FROM holdfast.ready JOIN holdfast.state ON state.seq = ready.seq
WHERE ready.ready_at > $1::timestamptz OR state.updated_at > $1::timestamptz

-- name: lock_time_bound_jobs
SELECT seq FROM holdfast.state WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED

-- name: select_by_number
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM holdfast.record
WHERE seq = ANY($1::bigint[])
ORDER BY seq
