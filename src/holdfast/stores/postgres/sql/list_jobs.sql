SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM holdfast.job
WHERE seq > $1
  AND ($2::text IS NULL OR queue = $2)
  AND ($3::text[] IS NULL OR kind = ANY($3))
  AND ($4::text[] IS NULL OR state = ANY($4))
  AND ($5::text IS NULL OR owner = $5)
  AND ($6::jsonb IS NULL OR (holdfast.shown(spec) -> 'labels')::jsonb @> $6)
ORDER BY seq
LIMIT $7
