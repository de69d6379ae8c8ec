INSERT INTO holdfast.meta (name, value) VALUES ('token_floor', $1::bigint::text)
ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value::bigint, excluded.value::bigint)::text
