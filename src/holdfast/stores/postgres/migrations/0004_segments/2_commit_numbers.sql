-- A commit announces itself before it draws its number, by a shared advisory lock whose key is the last number
-- drawn so far: its own is above. So a reader of the feed knows up to which number every commit is complete,
-- and waits for commits of ours only, not for any transaction of the server. A transaction of a caller's own
-- announces itself once: its first key covers all of its commits.
CREATE FUNCTION holdfast.draw_commit_4(external boolean) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    low bigint;
    mine text;
BEGIN
    IF external THEN
        mine := pg_current_xact_id()::text;
    END IF;
    IF mine IS NULL OR current_setting('holdfast.announced', true) IS DISTINCT FROM mine THEN
        low := coalesce(pg_sequence_last_value('holdfast.log_seq'::regclass), 0) & 4294967295;
        PERFORM pg_advisory_xact_lock_shared(
            hashtext('holdfast.feed'), (low - CASE WHEN low > 2147483647 THEN 4294967296 ELSE 0 END)::integer);
        IF external THEN
            PERFORM set_config('holdfast.announced', mine, true);
        END IF;
    END IF;
    RETURN nextval('holdfast.log_seq');
END
$$;

-- How many commits have had facts. A commit that has drawn its number before it has the locks of its rows is done
-- again when it has counted one meanwhile: the events and facts of a job are numbered in the order of their
-- commits.
CREATE SEQUENCE holdfast.fact_commit_seq;

-- The last number up to which every commit is complete, for a statement that begins after this one has ended.
CREATE FUNCTION holdfast.feed_end_4() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    drawn bigint := coalesce(pg_sequence_last_value('holdfast.log_seq'::regclass), 0);
BEGIN
    RETURN least(drawn, (
        SELECT min(drawn - ((drawn - objid::bigint) & 4294967295)) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND classid = (hashtext('holdfast.feed')::bigint & 4294967295)::oid));
END
$$;
