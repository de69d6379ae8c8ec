-- What the doctor asks.

-- name: doctor_server
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number,
       current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('data_checksums') = 'on' AS checksums,
       (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS waits,
       current_setting('synchronous_commit') AS waits_here,
       current_setting('synchronous_standby_names') AS standbys,
       current_setting('autovacuum') = 'on' AS vacuums,
       current_setting('max_connections')::integer AS connections_max,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       clock_timestamp() AS now,
       current_user AS me,
       has_database_privilege(current_database(), 'CREATE')
           AND coalesce(has_schema_privilege(to_regnamespace($1::text), 'CREATE'), true) AS can_make,
       current_database() AS database,
       pg_database_size(current_database()) AS size,
       (SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables WHERE schemaname = $1) AS dead,
       (SELECT min(xact_start) FROM pg_stat_activity JOIN pg_locks USING (pid)
        WHERE locktype = 'advisory' AND objsubid = 2
          AND classid = (hashtext('holdfast.feed')::bigint & 4294967295)::oid) AS oldest_writer,
       (SELECT min(prepared) FROM pg_prepared_xacts) AS oldest_prepared

-- name: doctor_tables
SELECT has_schema_privilege($1::text, 'CREATE') AND pg_has_role(
           (SELECT relowner FROM pg_class WHERE oid = 'holdfast.event'::regclass), 'USAGE') AS can_change,
       has_table_privilege('holdfast.state', 'INSERT, UPDATE, DELETE') AS can_write,
       (SELECT count(*) FROM pg_inherits WHERE inhparent = 'holdfast.event'::regclass) AS partitions,
       (SELECT min(state.due_at)
        FROM (SELECT jobs FROM holdfast.alarm ORDER BY due_at, id LIMIT 100) AS next
        CROSS JOIN unnest(next.jobs) AS job JOIN holdfast.state ON state.seq = job) AS due
