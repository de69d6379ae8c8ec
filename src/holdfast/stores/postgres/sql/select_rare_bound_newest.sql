SELECT found.seq
FROM unnest($2::text[]) AS wanted (state) CROSS JOIN LATERAL (
    SELECT seq FROM holdfast.job
    WHERE job.state = wanted.state AND job.state IN
          ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered')
      AND seq < $1
    ORDER BY seq DESC
    LIMIT 1 OFFSET $3) AS found
ORDER BY seq DESC
LIMIT 1
