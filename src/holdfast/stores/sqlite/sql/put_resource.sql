INSERT INTO resource (key, token, holder) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, holder = excluded.holder
WHERE excluded.token >= resource.token
