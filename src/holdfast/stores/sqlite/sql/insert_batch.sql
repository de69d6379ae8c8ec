INSERT INTO event (log_id, job, event_type, event_class, attempt, fencing_token, sequence,
                   end_sequence, actor, occurred_at, received_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
