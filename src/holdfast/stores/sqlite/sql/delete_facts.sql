DELETE FROM event
WHERE given_id IS NOT NULL AND about IN (SELECT value FROM json_each(?1))
