SELECT 1 FROM queue_count
WHERE jobs > 0
  AND (:queue IS NULL OR queue = :queue)
  AND (:queues IS NULL OR EXISTS (SELECT 1 FROM json_each(:queues) AS mine WHERE queue GLOB mine.value))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
LIMIT 1
