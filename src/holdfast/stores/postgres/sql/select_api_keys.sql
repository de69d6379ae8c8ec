SELECT key_id, record::text FROM holdfast.api_key ORDER BY created_at, key_id
