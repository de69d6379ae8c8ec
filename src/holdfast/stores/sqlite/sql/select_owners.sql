WITH next AS (
    SELECT owner, due_at, detail FROM job WHERE due_at IS NOT NULL ORDER BY due_at, seq LIMIT ?1
)
SELECT count(DISTINCT owner),
       count(CASE WHEN owner IS NOT NULL THEN detail ->> '$.lease.suspected' END),
       min(due_at)
FROM next
