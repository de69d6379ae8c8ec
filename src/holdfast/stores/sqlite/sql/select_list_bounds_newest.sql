SELECT (SELECT max(seq) FROM job WHERE seq < :after), (SELECT min(seq) FROM job)
