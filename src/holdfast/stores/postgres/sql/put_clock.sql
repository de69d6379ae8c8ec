INSERT INTO holdfast.meta (name, value) VALUES ('clock', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
