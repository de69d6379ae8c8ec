WITH had AS MATERIALIZED (
    SELECT key, token, holder FROM holdfast.resource WHERE key = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
SELECT key, token, holder FROM had
UNION ALL
SELECT key, token, coalesce(holder, '?') FROM holdfast.resource
WHERE key = ANY($1::text[]) AND key NOT IN (SELECT key FROM had)
