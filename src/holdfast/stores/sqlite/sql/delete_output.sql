DELETE FROM event WHERE log_id IN (
    SELECT log_id FROM event WHERE sequence IS NOT NULL AND received_at < ?1 LIMIT ?2)
