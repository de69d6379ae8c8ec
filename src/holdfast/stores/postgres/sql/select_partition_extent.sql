SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM holdfast.job_seq),
       coalesce(max(substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'TO \(''(\d+)''\)')::bigint), 0)
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = to_regclass($1)
