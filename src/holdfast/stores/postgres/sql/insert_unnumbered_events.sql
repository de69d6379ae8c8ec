INSERT INTO holdfast.event (log_id, place, job, event_offset, transition_no, event_type, event_class,
                            from_state, to_state, attempt, fencing_token, sequence, end_sequence,
                            op_id, actor, occurred_at, received_at, body)
SELECT nextval('holdfast.log_seq'),
       (SELECT holdfast.base() + greatest(pg_current_xact_id()::text::bigint,
                                      pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)),
       drawn.seq, event_offset, transition_no, event_type, event_class,
       from_state, to_state, attempt, fencing_token, sequence, end_sequence,
       op_id, actor, occurred_at, received_at, body::json
FROM agreed, unnest($1::holdfast.new_event[]) AS new
JOIN (SELECT seq, row_number() OVER (ORDER BY seq) AS place FROM insert_unnumbered_jobs) AS drawn
  ON drawn.place = new.job
RETURNING 1
