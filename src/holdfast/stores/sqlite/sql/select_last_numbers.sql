SELECT max(coalesce((SELECT max(seq) FROM job), 0),
           coalesce((SELECT value FROM meta WHERE name = 'seq_floor'), 0)),
       max(coalesce((SELECT max(log_id) FROM event), 0),
           coalesce((SELECT value FROM meta WHERE name = 'log_floor'), 0))
