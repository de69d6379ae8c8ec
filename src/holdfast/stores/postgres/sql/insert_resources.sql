INSERT INTO holdfast.resource (key, token, holder)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])
ON CONFLICT (key) DO NOTHING
RETURNING 1
