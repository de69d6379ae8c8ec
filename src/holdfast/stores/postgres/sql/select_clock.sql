SELECT clock_timestamp(), coalesce((SELECT value FROM holdfast.meta WHERE name = 'clock'), '')
