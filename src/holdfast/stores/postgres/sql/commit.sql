-- Statements that write commits, and what they need.

-- name: write_commit
-- No id has a comma, and no JSON the separator of the specs.
SELECT wrote, facts, row_version, now, last_number
FROM holdfast.commit_4(
    $1::integer, $2::timestamptz, $3::timestamptz, $4::timestamptz, $5::text, $6::text, $7::text,
    string_to_array($8::text, ','), $9::text[], $10::text[], $11::integer[], $12::text[], $13::text[], $14::text[],
    $15::timestamptz[], $16::text[], string_to_array($17::text, E'\x1e'), $18::text[],
    $19::bigint[], $20::integer[], $21::bigint[], $22::integer[], $23::text[], $24::integer[], $25::integer[],
    $26::integer[], $27::integer[], $28::integer[], $29::bigint[], $30::text[], $31::timestamptz[],
    $32::timestamptz[], $33::timestamptz[], $34::timestamptz[], $35::text[],
    $36::bigint[], $37::integer[], $38::timestamptz[], $39::timestamptz[], $40::text[],
    $41::bigint[], $42::integer[], $43::timestamptz[],
    $44::text[], $45::integer[], $46::integer[], $47::timestamptz[], $48::text[], $49::text,
    $50::text[], $51::text[], $52::integer[], $53::text[], $54::bigint[], $55::timestamptz, $56::bigint[],
    $57::text::json)

-- name: write_new_job
SELECT wrote, facts, row_version, now, last_number
FROM holdfast.new_job_4(
    $1::timestamptz, $2::timestamptz, $3::timestamptz, $4::text, $5::text, $6::text,
    $7::text, $8::text, $9::text, $10::integer, $11::text, $12::text, $13::timestamptz, $14::text, $15::text,
    $16::text, $17::timestamptz, $18::timestamptz, $19::text, $20::integer, $21::text)

-- name: allocate_job_numbers
SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       ARRAY(SELECT nextval('holdfast.job_seq') FROM generate_series(1, $1::integer))

-- name: select_lanes
SELECT queue, priority, kind, executor, region, locking, id FROM holdfast.lane ORDER BY id DESC LIMIT $1

-- name: make_lanes
INSERT INTO holdfast.lane (queue, priority, kind, executor, region, locking)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::boolean[]) AS new
ORDER BY new
ON CONFLICT DO NOTHING

-- name: find_lanes
SELECT lane.queue, lane.priority, lane.kind, lane.executor, lane.region, lane.locking, lane.id
FROM unnest($1::text[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::boolean[])
         AS wanted(queue, priority, kind, executor, region, locking)
JOIN holdfast.lane USING (queue, priority, kind, executor, region, locking)

-- name: compact_counts
WITH old AS (
    DELETE FROM holdfast.queue_count
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM holdfast.queue_count LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING queue, state, jobs)
INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT queue, state, sum(jobs) FROM old GROUP BY queue, state HAVING sum(jobs) <> 0
