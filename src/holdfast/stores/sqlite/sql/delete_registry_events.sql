DELETE FROM event
WHERE event_offset IS NOT NULL AND job IN (SELECT value FROM json_each(?1))
