SELECT (SELECT system_identifier FROM pg_control_system())
           || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
           || '/' || 'holdfast.job'::regclass::oid
           || '/' || CASE WHEN pg_is_in_recovery() THEN NULL
                          ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       (SELECT value FROM holdfast.meta WHERE name = 'home'),
       coalesce((SELECT value::bigint FROM holdfast.meta WHERE name = 'epoch'), 0),
       (SELECT value FROM holdfast.meta WHERE name = 'shutting_out')
