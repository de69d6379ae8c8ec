INSERT INTO event (log_id, job, event_offset, transition_no, event_type, event_class, from_state,
                   to_state, attempt, fencing_token, op_id, actor, occurred_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
