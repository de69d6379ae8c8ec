UPDATE holdfast.resource SET token = token + $1::bigint, holder = NULL
