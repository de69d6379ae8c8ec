WITH old AS (
    SELECT job, fencing_token, sequence FROM holdfast.event
    WHERE sequence IS NOT NULL AND received_at < $1
    LIMIT $2),
gone AS (
    DELETE FROM holdfast.event USING old
    WHERE event.job = old.job AND event.fencing_token = old.fencing_token
      AND event.sequence = old.sequence AND event.sequence IS NOT NULL
    RETURNING 1)
SELECT count(*) FROM gone
