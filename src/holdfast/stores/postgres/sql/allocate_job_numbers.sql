SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       ARRAY(SELECT nextval('holdfast.job_seq') FROM generate_series(1, $1::integer))
