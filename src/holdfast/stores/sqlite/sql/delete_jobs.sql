DELETE FROM job WHERE seq IN (SELECT value FROM json_each(?1))
