SELECT has_schema_privilege($1::text, 'CREATE') AND pg_has_role(
           (SELECT relowner FROM pg_class WHERE oid = 'holdfast.event'::regclass), 'USAGE') AS can_change,
       has_table_privilege('holdfast.job', 'INSERT, UPDATE, DELETE') AS can_write,
       (SELECT count(*) FROM pg_inherits WHERE inhparent = 'holdfast.event'::regclass) AS partitions,
       (SELECT min(due_at) FROM holdfast.job WHERE due_at IS NOT NULL) AS due
