SELECT (SELECT min(seq) FROM job WHERE seq > :after), (SELECT max(seq) FROM job)
