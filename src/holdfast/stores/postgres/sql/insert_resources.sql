INSERT INTO holdfast.resource (key, token, holder)
SELECT key, token, holder FROM unnest($1::holdfast.new_resource[])
ON CONFLICT (key) DO NOTHING
RETURNING 1
