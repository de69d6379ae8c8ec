SELECT record FROM api_key ORDER BY created_at, key_id
