-- For SQL by hand: one row for each event, also for those that were written together. These have one time, the
-- time of their commit or, for the events of a worker, that of the first; attributes has all of a worker's event.
CREATE FUNCTION holdfast.one_of(field json, item json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE json_typeof(field) WHEN 'array' THEN item #>> '{}' ELSE field #>> '{}' END
$$;

-- The events of a segment. STRICT keeps the planner from taking this apart: it would expect far more rows.
CREATE FUNCTION holdfast.unfold(events json)
RETURNS TABLE (place integer, job bigint, event_offset text, attempt text, trace_id text, attributes json)
LANGUAGE sql IMMUTABLE STRICT ROWS 10 AS $$
    SELECT CASE json_typeof(field.at) WHEN 'array' THEN (item.at #>> '{}')::integer
               ELSE coalesce((field.at #>> '{}')::integer, 0) + item.row::integer END,
           holdfast.one_of(field.job, item.job)::bigint, holdfast.one_of(field."offset", item."offset"),
           holdfast.one_of(field.attempt, item.attempt), holdfast.one_of(field.trace_id, item.trace_id),
           CASE json_typeof(field.attributes) WHEN 'array' THEN item.attributes ELSE field.attributes END
    FROM json_to_record(holdfast.shown(events)) AS field(
        n integer, at json, job json, "offset" json, attempt json, trace_id json, attributes json)
    CROSS JOIN LATERAL ROWS FROM (
        generate_series(0, field.n - 1),
        json_array_elements(CASE json_typeof(field.job) WHEN 'array' THEN field.job END),
        json_array_elements(CASE json_typeof(field.at) WHEN 'array' THEN field.at END),
        json_array_elements(CASE json_typeof(field."offset") WHEN 'array' THEN field."offset" END),
        json_array_elements(CASE json_typeof(field.attempt) WHEN 'array' THEN field.attempt END),
        json_array_elements(CASE json_typeof(field.trace_id) WHEN 'array' THEN field.trace_id END),
        json_array_elements(CASE json_typeof(field.attributes) WHEN 'array' THEN field.attributes END)
    ) AS item(row, job, at, "offset", attempt, trace_id, attributes)
$$;

CREATE VIEW holdfast.job_event_log AS
SELECT
    (segment.commit << 20) + item.place AS log_id,
    job.job_id || '/' || item.event_offset AS event_id,
    segment.event_type,
    segment.occurred_at,
    job.job_id,
    NULL AS task_id,
    job.job_id || '#' || item.attempt AS execution_id,
    coalesce(item.trace_id, holdfast.shown(job.origin) ->> 'trace_id') AS trace_id,
    NULL AS span_id,
    item.attributes,
    segment.occurred_at AS received_at
FROM holdfast.job
JOIN holdfast.state ON state.seq = job.seq
JOIN holdfast.segment ON segment.commit = ANY(state.log)
CROSS JOIN LATERAL holdfast.unfold(segment.events) AS item
WHERE item.job = job.seq
UNION ALL
SELECT
    event.log_id,
    job.job_id || '/' || coalesce(
        event.event_offset::text, event.attempt || '.' || event.fencing_token || '.' || (item.one ->> 'sequence')),
    event.event_type,
    event.occurred_at,
    job.job_id,
    coalesce(item.one ->> 'task_id', shown.body ->> 'task_id'),
    coalesce(item.one ->> 'execution_id', shown.body ->> 'execution_id', job.job_id || '#' || event.attempt),
    coalesce(item.one ->> 'trace_id', shown.body ->> 'trace_id', holdfast.shown(job.origin) ->> 'trace_id'),
    coalesce(item.one ->> 'span_id', shown.body ->> 'span_id'),
    coalesce(item.one, shown.body -> 'attributes'),
    coalesce(event.received_at, event.occurred_at)
FROM holdfast.event JOIN holdfast.job ON job.seq = event.job
CROSS JOIN LATERAL (
    SELECT CASE WHEN event.sequence IS NULL THEN holdfast.shown(event.body) END AS body,
           CASE WHEN event.sequence IS NULL THEN '[null]'::json ELSE holdfast.shown(event.body) END AS items) AS shown
CROSS JOIN LATERAL (
    SELECT CASE json_typeof(value) WHEN 'object' THEN value END AS one
    FROM json_array_elements(shown.items) AS value) AS item
UNION ALL
SELECT
    log_id, given_id, event_type, occurred_at, about, shown.body ->> 'task_id',
    shown.body ->> 'execution_id', shown.body ->> 'trace_id', shown.body ->> 'span_id',
    shown.body -> 'attributes', coalesce(received_at, occurred_at)
FROM holdfast.fact CROSS JOIN LATERAL (SELECT holdfast.shown(fact.body) AS body) AS shown;
