INSERT INTO event (log_id, event_type, event_class, attempt, fencing_token, op_id, actor,
                   occurred_at, received_at, given_id, about, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (given_id) WHERE given_id IS NOT NULL DO NOTHING
