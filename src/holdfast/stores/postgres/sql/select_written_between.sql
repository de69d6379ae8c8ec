WITH last_step AS MATERIALIZED (
    SELECT CASE WHEN age(xmin) >= 0 THEN age(xmin) END AS age FROM holdfast.meta WHERE name = 'clock')
SELECT EXISTS (
           SELECT FROM (SELECT xmin, updated_at FROM holdfast.job ORDER BY seq DESC LIMIT 100) AS newest
           WHERE updated_at > $1::timestamptz AND updated_at < $2::timestamptz
             AND age(xmin) < coalesce((SELECT age FROM last_step), 2147483647))
    OR EXISTS (
           SELECT FROM holdfast.job
           WHERE due_at IS NOT NULL AND owner IS NOT NULL
             AND age(xmin) < coalesce((SELECT age FROM last_step), 2147483647)
             AND (holdfast.shown(detail) -> 'lease' ->> 'heartbeat_at')::timestamptz > $1::timestamptz
             AND (holdfast.shown(detail) -> 'lease' ->> 'heartbeat_at')::timestamptz < $2::timestamptz)
