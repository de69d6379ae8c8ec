INSERT INTO holdfast.event (log_id, place, job, event_offset, transition_no, event_type, event_class,
                            from_state, to_state, attempt, fencing_token, sequence, end_sequence,
                            op_id, actor, occurred_at, received_at, body)
SELECT nextval('holdfast.log_seq'),
       $1::bigint + (SELECT greatest(pg_current_xact_id()::text::bigint,
                                     pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)),
       new.*
FROM agreed, unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[],
                    $7::text[], $8::text[], $9::integer[], $10::bigint[], $11::bigint[], $12::bigint[],
                    $13::text[], $14::text[], $15::timestamptz[], $16::timestamptz[], $17::text[]::json[]) AS new
RETURNING 1
