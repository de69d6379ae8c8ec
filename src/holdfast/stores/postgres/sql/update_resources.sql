UPDATE holdfast.resource
SET token = new.token, holder = new.holder
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[])
         AS new(key, token, holder, read_token, read_holder)
WHERE resource.key = new.key AND resource.token = new.read_token
  AND resource.holder IS NOT DISTINCT FROM new.read_holder
RETURNING 1
