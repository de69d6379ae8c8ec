WITH last_step AS MATERIALIZED (
    SELECT CASE WHEN age(xmin) >= 0 THEN age(xmin) END AS age, (value::json ->> 'at')::timestamptz AS told
    FROM holdfast.meta WHERE name = 'clock')
SELECT greatest(
           (SELECT told FROM last_step),
           (SELECT max(coalesce(received_at, occurred_at))
            FROM (SELECT xmin, received_at, occurred_at FROM holdfast.event
                  ORDER BY place DESC, log_id DESC LIMIT 20) AS newest
            WHERE age(xmin) < coalesce((SELECT age FROM last_step), 2147483647)),
           (SELECT max((holdfast.shown(detail) -> 'lease' ->> 'heartbeat_at')::timestamptz)
            FROM (SELECT xmin, owner, detail FROM holdfast.job
                  WHERE due_at IS NOT NULL ORDER BY due_at DESC, seq DESC LIMIT 100) AS latest
            WHERE owner IS NOT NULL
              AND age(xmin) <= coalesce((SELECT age FROM last_step), 2147483647))) AS told,
       clock_timestamp() AS now,
       NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
           AND has_table_privilege('holdfast.job', 'UPDATE')
           AND has_table_privilege('holdfast.meta', 'INSERT')
           AND has_table_privilege('holdfast.meta', 'UPDATE') AS may_write
