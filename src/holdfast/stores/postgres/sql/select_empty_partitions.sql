SELECT pg_class.relname
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid,
     LATERAL (SELECT substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'FROM \(''(\d+)''\)')::bigint,
                     substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'TO \(''(\d+)''\)')::bigint
             ) AS extent(first, beyond)
WHERE inhparent = to_regclass($1) AND beyond <= $2
  AND NOT EXISTS (SELECT FROM holdfast.job WHERE seq >= first AND seq < beyond)
ORDER BY first
