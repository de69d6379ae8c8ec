DELETE FROM holdfast.job WHERE seq = ANY($1::bigint[])
