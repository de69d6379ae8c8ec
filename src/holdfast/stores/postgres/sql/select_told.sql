SELECT EXISTS (
           SELECT FROM (SELECT updated_at FROM holdfast.job ORDER BY seq DESC LIMIT 100) AS newest
           WHERE updated_at > $1::timestamptz AND updated_at < $2::timestamptz)
    OR EXISTS (
           SELECT FROM holdfast.job
           WHERE due_at IS NOT NULL AND owner IS NOT NULL
             AND (holdfast.shown(detail) -> 'lease' ->> 'heartbeat_at')::timestamptz > $1::timestamptz
             AND (holdfast.shown(detail) -> 'lease' ->> 'heartbeat_at')::timestamptz < $2::timestamptz)
