SELECT count(*) = cardinality($1::holdfast.changed_job[]) AS all_locked
FROM (
    SELECT
    FROM unnest($1::holdfast.changed_job[]) AS new
    JOIN holdfast.job ON job.seq = new.seq AND job.version = new.read_version
                     AND job.fencing_token = new.read_token AND job.xmin = new.read_row
    FOR NO KEY UPDATE OF job SKIP LOCKED) AS locked
