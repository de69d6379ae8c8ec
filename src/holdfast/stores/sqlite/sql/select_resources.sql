SELECT key, token, holder FROM resource WHERE key IN (SELECT value FROM json_each(?1))
