SELECT max(updated_at) FROM job WHERE due_at IS NOT NULL OR state = 'queued'
