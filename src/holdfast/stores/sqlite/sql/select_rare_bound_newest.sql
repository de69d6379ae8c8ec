SELECT seq FROM job
WHERE state = :state AND state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered') AND seq < :after
ORDER BY seq DESC
LIMIT 1 OFFSET :rows
