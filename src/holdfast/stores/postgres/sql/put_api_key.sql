INSERT INTO holdfast.api_key (key_id, created_at, record) VALUES ($1, $2, $3::text::json)
ON CONFLICT (key_id) DO UPDATE SET created_at = excluded.created_at, record = excluded.record
