INSERT INTO api_key (key_id, created_at, record) VALUES (?, ?, ?)
ON CONFLICT (key_id) DO UPDATE SET created_at = excluded.created_at, record = excluded.record
