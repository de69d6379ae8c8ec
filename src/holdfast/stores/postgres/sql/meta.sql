-- Statements about the store itself: its settings, its epoch, its partitions.

-- name: get_meta
SELECT value FROM holdfast.meta WHERE name = $1

-- name: put_meta
INSERT INTO holdfast.meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING

-- name: delete_meta
DELETE FROM holdfast.meta WHERE name = $1

-- name: select_epoch
SELECT (SELECT system_identifier FROM pg_control_system())
           || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
           || '/' || 'holdfast.job'::regclass::oid
           || '/' || CASE WHEN pg_is_in_recovery() THEN NULL
                          ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       (SELECT value FROM holdfast.meta WHERE name = 'home'),
       coalesce((SELECT value::bigint FROM holdfast.meta WHERE name = 'epoch'), 0),
       (SELECT value FROM holdfast.meta WHERE name = 'shutting_out')

-- name: begin_epoch
INSERT INTO holdfast.meta (name, value)
SELECT 'home', $1::text
UNION ALL SELECT 'epoch', ($2::bigint + 1)::text
UNION ALL SELECT 'shutting_out', $3::text
UNION ALL SELECT 'token_floor', (
    greatest((SELECT max(fencing_token) FROM holdfast.state),
             (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'), 0) + $4::bigint)::text
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: free_resources
UPDATE holdfast.resource SET token = token + $1::bigint, holder = NULL

-- name: raise_token_floor
INSERT INTO holdfast.meta (name, value) VALUES ('token_floor', $1::bigint::text)
ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value::bigint, excluded.value::bigint)::text

-- name: select_partition_extent
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM holdfast.job_seq),
       coalesce(max(substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'TO \(''(\d+)''\)')::bigint), 0)
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = to_regclass($1)

-- name: select_empty_partitions
SELECT pg_class.relname
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid,
     LATERAL (SELECT substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'FROM \(''(\d+)''\)')::bigint,
                     substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'TO \(''(\d+)''\)')::bigint
             ) AS extent(first, beyond)
WHERE inhparent = to_regclass($1) AND beyond <= $2
  AND NOT EXISTS (SELECT FROM holdfast.job WHERE seq >= first AND seq < beyond)
ORDER BY first
