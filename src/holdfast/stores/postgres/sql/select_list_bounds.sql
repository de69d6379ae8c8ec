SELECT (SELECT min(seq) FROM holdfast.job WHERE seq > $1), (SELECT max(seq) FROM holdfast.job)
