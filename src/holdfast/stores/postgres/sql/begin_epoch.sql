INSERT INTO holdfast.meta (name, value)
SELECT 'home', $1::text
UNION ALL SELECT 'epoch', ($2::bigint + 1)::text
UNION ALL SELECT 'shutting_out', $3::text
UNION ALL SELECT 'token_floor', (
    greatest((SELECT max(fencing_token) FROM holdfast.job),
             (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'), 0) + $4::bigint)::text
ON CONFLICT (name) DO UPDATE SET value = excluded.value
