DELETE FROM event
WHERE sequence IS NOT NULL AND job IN (SELECT value FROM json_each(?1))
