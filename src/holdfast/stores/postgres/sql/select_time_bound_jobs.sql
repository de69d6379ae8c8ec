SELECT seq FROM holdfast.job WHERE due_at IS NOT NULL
UNION
SELECT seq FROM holdfast.job
WHERE state = 'queued' AND (ready_at > $1::timestamptz OR updated_at > $1::timestamptz)
