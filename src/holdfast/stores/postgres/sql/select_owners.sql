SELECT count(DISTINCT owner),
       count(CASE WHEN owner IS NOT NULL THEN detail -> 'lease' ->> 'suspected' END),
       min(due_at)
FROM (SELECT owner, due_at, detail FROM holdfast.job
      WHERE due_at IS NOT NULL ORDER BY due_at, seq LIMIT $1) AS next
