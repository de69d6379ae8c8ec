SELECT key, token, holder FROM holdfast.resource WHERE key = ANY($1::text[]) ORDER BY key FOR NO KEY UPDATE
