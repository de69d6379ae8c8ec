UPDATE holdfast.resource
SET token = new.token, holder = new.holder
FROM unnest($1::holdfast.changed_resource[]) AS new
WHERE resource.key = new.key AND resource.token = new.read_token
  AND resource.holder IS NOT DISTINCT FROM new.read_holder
RETURNING 1
